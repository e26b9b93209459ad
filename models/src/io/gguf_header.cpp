#include "io/gguf_header.hpp"

#include "io/gguf_values.hpp"
#include "io/tensor_checks.hpp"
#include "io/utf8.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <span>
#include <utility>

namespace headlane::models::internal {
namespace {

static_assert(std::endian::native == std::endian::little, "GGUF files are read as they are");

constexpr std::uint64_t max_header_bytes = 100'000'000, max_keys = 65'536, max_name = 65'535;
constexpr std::uint32_t max_axes = 4, default_alignment = 32;

/// Reads a header from its beginning, part by part as it turns out how long it is.
class HeaderReader {
 public:
  explicit HeaderReader(const InputFile& file) : file_(file) {}

  GgufHeader read();

 private:
  template <class... Parts>
  [[noreturn]] void fail_here(const Parts&... parts) const {
    if (kind_.empty()) fail(file_.path(), parts...);
    if (name_.empty()) fail(file_.path(), kind_, " ", number_, ": ", parts...);
    fail(file_.path(), kind_, " ", in_quotes(name_), ": ", parts...);
  }

  /// The position of the next n bytes, which are read.
  std::size_t take(std::uint64_t n);
  template <class T>
  T number() {
    const std::size_t at = take(sizeof(T));
    T x;
    std::memcpy(&x, header_.bytes.data() + at, sizeof x);
    return x;
  }

  void begin(std::string_view kind, std::uint64_t number) { kind_ = kind, number_ = number, name_.clear(); }
  std::string name();
  void read_beginning();
  void read_field();
  void take_values(const GgufField& field);
  void read_tensor();
  std::uint64_t size_of(const GgufTensor& tensor) const;
  std::uint64_t alignment();
  /// Tensors begin at multiples of the alignment, and their data is in the file.
  void check_data(std::uint64_t alignment) const;

  const InputFile& file_;
  GgufHeader header_;
  std::uint64_t position_ = 0, tensors_ = 0, fields_ = 0;
  std::string_view kind_;  // what is read, for messages: a key or a tensor, its number, its name if it is known
  std::uint64_t number_ = 0;
  std::string name_;
};

std::size_t HeaderReader::take(std::uint64_t n) {
  const std::uint64_t rest = file_.size() - position_;
  if (n > rest) fail_here("needs ", n, " bytes from byte ", position_, " on, but the file ends after ", rest);
  if (n > max_header_bytes - position_)
    fail_here("needs ", n, " bytes from byte ", position_, " on, the maximum length of a header is ", max_header_bytes);
  const std::uint64_t end = position_ + n;
  if (const std::uint64_t had = header_.bytes.size(); end > had) {
    constexpr std::uint64_t part = 65'536;
    header_.bytes.resize(std::min({file_.size(), max_header_bytes, std::max(end, had + std::max(had, part))}));
    file_.read(had, std::as_writable_bytes(std::span(header_.bytes).subspan(had)), "header: ");
  }
  return static_cast<std::size_t>(std::exchange(position_, end));
}

std::string HeaderReader::name() {
  const auto length = number<std::uint64_t>();
  if (length > max_name) fail_here("its name has ", length, " bytes, the maximum is ", max_name);
  const std::size_t at = take(length);
  std::string text = header_.bytes.substr(at, length);
  if (!is_utf8(text)) fail_here("its name is not UTF-8");
  return text;
}

void HeaderReader::read_beginning() {
  constexpr std::uint64_t least = 24;
  if (file_.size() < least) fail_here("has ", file_.size(), " bytes, a GGUF file has at least ", least);
  take(4);
  if (!header_.bytes.starts_with("GGUF")) fail_here("does not begin with 'GGUF'");
  const auto version = number<std::uint32_t>();
  if (version != 0 && (version & 0xffffu) == 0) fail_here("is big-endian, only little-endian files can be read");
  if (version != 2 && version != 3) fail_here("is of version ", version, ", only 2 and 3 can be read");
  tensors_ = number<std::uint64_t>();
  fields_ = number<std::uint64_t>();
  if (fields_ > max_keys) fail_here("has ", fields_, " keys, the maximum is ", max_keys);
}

void HeaderReader::take_values(const GgufField& field) {
  if (field.type == gguf_string) {
    for (std::uint64_t i = 0; i < field.count; ++i) take(number<std::uint64_t>());
    return;
  }
  const std::uint64_t width = width_of_value(field.type), rest = file_.size() - position_;
  if (field.count > rest / width)
    fail_here("has ", field.count, " values of ", width, " bytes, but the file ends after ", rest, " bytes");
  const std::size_t first = take(field.count * width);
  if (field.type != gguf_bool) return;
  for (const char x : std::string_view(header_.bytes).substr(first, field.count))
    if (x != 0 && x != 1) fail_here("has a bool that is ", static_cast<unsigned char>(x));
}

void HeaderReader::read_field() {
  std::string key = name();
  name_ = key;
  GgufField field{number<std::uint32_t>(), false, 1, 0};
  if (field.type == gguf_array) {
    field.is_array = true;
    field.type = number<std::uint32_t>();
    if (field.type == gguf_array) fail_here("is an array of arrays, which cannot be read");
    field.count = number<std::uint64_t>();
  }
  if (field.type > gguf_float64) fail_here("its type is ", field.type, ", which is unknown");
  field.position = position_;
  take_values(field);
  if (!header_.fields.emplace(std::move(key), field).second) fail_here("occurs twice");
}

std::uint64_t HeaderReader::size_of(const GgufTensor& tensor) const {
  const auto& [type, shape, offset, size] = tensor;
  const auto row = static_cast<std::uint64_t>(shape.empty() ? 1 : shape.back());
  if (row % type->elements != 0) {
    fail_here("shape ", listed(shape), " of ", type->name, ": rows of ", row,
              " elements are no whole number of blocks of ", type->elements);
  }
  std::uint64_t blocks = 1, bytes = 0;
  bool fits = true;
  for (const Index axis : shape)
    fits = fits && !__builtin_mul_overflow(blocks, static_cast<std::uint64_t>(axis), &blocks);
  if (!fits || __builtin_mul_overflow(blocks / type->elements, std::uint64_t{type->bytes}, &bytes))
    fail_here("shape ", listed(shape), " of ", type->name, " overflows");
  return bytes;
}

void HeaderReader::read_tensor() {
  std::string key = name();
  name_ = key;
  GgufTensor tensor{nullptr, {}, 0, 0};
  const auto axes = number<std::uint32_t>();
  if (axes > max_axes) fail_here("has ", axes, " axes, the maximum is ", max_axes);
  for (std::uint32_t axis = 0; axis < axes; ++axis) {
    const auto size = number<std::uint64_t>();
    if (size > static_cast<std::uint64_t>(std::numeric_limits<Index>::max()))
      fail_here("shape holds ", size, ", too large a number");
    tensor.shape.insert(tensor.shape.begin(), static_cast<Index>(size));
  }
  const auto type = number<std::uint32_t>();
  tensor.type = find_gguf_type(type);
  if (tensor.type == nullptr) fail_here("its type is ", type, ", which is unknown");
  tensor.offset = number<std::uint64_t>();
  tensor.size = size_of(tensor);
  if (!header_.tensors.emplace(std::move(key), std::move(tensor)).second) fail_here("occurs twice");
}

std::uint64_t HeaderReader::alignment() {
  const auto found = header_.fields.find("general.alignment");
  if (found == header_.fields.end()) return default_alignment;
  name_ = found->first;
  const GgufField& field = found->second;
  if (field.is_array || field.type != gguf_uint32) fail_here("is not a number of the type uint32");
  std::uint32_t alignment = 0;
  std::memcpy(&alignment, header_.bytes.data() + field.position, sizeof alignment);
  if (!std::has_single_bit(alignment)) fail_here("is ", alignment, ", not a power of two");
  return alignment;
}

void HeaderReader::check_data(std::uint64_t alignment) const {
  const std::filesystem::path& path = file_.path();
  const std::uint64_t start = (position_ + alignment - 1) / alignment * alignment,
                      bytes = file_.size() - std::min(start, file_.size());
  for (const auto& [name, tensor] : header_.tensors) {
    if (tensor.offset > bytes || tensor.size > bytes - tensor.offset) {
      fail(path, subject_of(name), "has ", tensor.size, " bytes of data from byte ", tensor.offset,
           " on, the file has ", bytes);
    }
    if (tensor.offset % alignment != 0)
      fail(path, subject_of(name), "begins at ", tensor.offset, ", not aligned to ", alignment);
  }
  check_places(header_.tensors, bytes, alignment, path);
}

GgufHeader HeaderReader::read() {
  read_beginning();
  for (std::uint64_t i = 0; i < fields_; ++i) {
    begin("key", i);
    read_field();
  }
  for (std::uint64_t i = 0; i < tensors_; ++i) {
    begin("tensor", i);
    read_tensor();
  }
  begin("key", 0);
  const std::uint64_t align = alignment(), start = (position_ + align - 1) / align * align;
  check_data(align);
  header_.bytes.resize(position_);
  header_.bytes.shrink_to_fit();
  for (auto& [name, tensor] : header_.tensors) tensor.offset += start;
  return std::move(header_);
}

}  // namespace

GgufHeader read_gguf(const InputFile& file) { return HeaderReader(file).read(); }

}  // namespace headlane::models::internal
