#include "io/safetensors_header.hpp"

#include "io/error.hpp"
#include "io/json_limits.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <optional>
#include <utility>

namespace headlane::models::internal {
namespace {

using nlohmann::json;

constexpr std::size_t max_other_values = 65'536, max_axes = 64;

struct Dtype {
  std::string_view name;
  unsigned bits;
};

constexpr std::array<Dtype, 22> dtypes{
    {{"F32", 32},        {"F16", 16},    {"BF16", 16},   {"F64", 64},    {"C64", 64},    {"I64", 64},
     {"I32", 32},        {"I16", 16},    {"I8", 8},      {"U64", 64},    {"U32", 32},    {"U16", 16},
     {"U8", 8},          {"BOOL", 8},    {"F8_E4M3", 8}, {"F8_E5M2", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8},
     {"F8_E5M2FNUZ", 8}, {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"F4", 4}}};

/// A value as the parser reports it; an array or object when it begins.
struct Value {
  const char* type;                    // as type_name() of nlohmann::json
  std::string_view text;               // of a string without quotes; of other scalars as in the file
  std::optional<std::uint64_t> whole;  // an integer from 0 to 2^64 - 1

  [[nodiscard]] bool is(std::string_view name) const { return type == name; }
};

enum class Member : unsigned char { dtype, shape, offsets, other };

Member member_of(std::string_view name) {
  if (name == "dtype") return Member::dtype;
  if (name == "shape") return Member::shape;
  return name == "data_offsets" ? Member::offsets : Member::other;
}

/// Handles the events of the parser. The state is the innermost object or array that has a meaning.
class HeaderReader final : public json::json_sax_t {
 public:
  HeaderReader(std::uint64_t data_bytes, const std::filesystem::path& path)
      : data_bytes_(data_bytes), path_(path), limits_(path, max_other_values) {}

  StoredTensors take() { return std::move(tensors_); }

  bool null() override { return value({"null", "null", {}}); }
  bool boolean(bool is) override { return value({"boolean", is ? "true" : "false", {}}); }
  bool number_integer(number_integer_t number) override { return value({"number", std::to_string(number), {}}); }
  bool number_unsigned(number_unsigned_t number) override { return value({"number", {}, number}); }
  bool number_float(number_float_t /*number*/, const string_t& text) override { return value({"number", text, {}}); }
  bool string(string_t& text) override { return value({"string", text, {}}); }
  bool binary(binary_t& /*bytes*/) override { return false; }  // JSON has no binary values
  bool start_object(std::size_t /*size*/) override { return value({"object", "an object", {}}); }
  bool start_array(std::size_t /*size*/) override { return value({"array", "an array", {}}); }
  bool key(string_t& name) override;
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool parse_error(std::size_t /*at*/, const std::string& /*token*/, const json::exception& error) override {
    fail_not_json(path_, error.what());
  }

 private:
  enum class Where : unsigned char { outside, header, metadata, tensor, shape, offsets, ignored };

  template <class... Parts>
  [[noreturn]] void fail_tensor(const Parts&... parts) const {
    fail(path_, subject_of(*name_), parts...);
  }

  bool value(const Value& value);
  bool close();
  void name_entry(std::string& name);
  void begin_entry(const Value& value);
  void begin_member(const Value& value);
  void begin_other(const Value& value);
  void read_dtype(const Value& value);
  void read_axis(const Value& value);
  void read_offset(const Value& value);
  void finish_tensor();
  [[nodiscard]] std::uint64_t whole(const char* member, const Value& value) const;
  [[nodiscard]] std::uint64_t bytes() const;

  std::uint64_t data_bytes_;
  const std::filesystem::path& path_;
  JsonLimits limits_;  // for values that describe no tensor
  StoredTensors tensors_;
  Where where_ = Where::outside;
  bool has_metadata_ = false;
  std::string other_name_;  // in metadata

  // The tensor whose entry is read; none for metadata.
  const std::string* name_ = nullptr;
  StoredTensor* tensor_ = nullptr;
  Member member_ = Member::other;
  std::array<bool, 3> has_{};  // by Member, except the last
  unsigned bits_ = 0;          // per element
  std::size_t offsets_ = 0;    // number of offsets read
  std::array<std::uint64_t, 2> place_{};
};

bool HeaderReader::key(string_t& name) {
  if (where_ == Where::header) {
    name_entry(name);
    return true;
  }
  if (where_ == Where::tensor) member_ = member_of(name);
  if (where_ == Where::tensor && member_ != Member::other) {
    if (std::exchange(has_[static_cast<std::size_t>(member_)], true))
      fail_tensor("the name ", in_quotes(name), " occurs twice");
    return true;
  }
  limits_.name(name);
  other_name_ = std::move(name);
  return true;
}

void HeaderReader::name_entry(std::string& name) {
  const bool is_metadata = name == "__metadata__";
  name_ = nullptr;
  if (is_metadata ? has_metadata_ : tensors_.contains(name)) fail(path_, "the name ", in_quotes(name), " occurs twice");
  if (is_metadata) {
    has_metadata_ = true;
    return;
  }
  const auto at = tensors_.try_emplace(std::move(name)).first;
  name_ = &at->first;
  tensor_ = &at->second;
  has_ = {};
  offsets_ = 0;
}

bool HeaderReader::value(const Value& value) {
  switch (where_) {
    case Where::outside:
      where_ = Where::header;
      break;
    case Where::header:
      begin_entry(value);
      break;
    case Where::metadata:
      if (!value.is("string"))
        fail(path_, "__metadata__ ", in_quotes(other_name_), " is not a string but ", value.type);
      limits_.value();
      break;
    case Where::tensor:
      begin_member(value);
      break;
    case Where::shape:
      read_axis(value);
      break;
    case Where::offsets:
      read_offset(value);
      break;
    case Where::ignored:
      begin_other(value);
      break;
  }
  return true;
}

bool HeaderReader::close() {
  switch (where_) {
    case Where::tensor:
      finish_tensor();
      [[fallthrough]];
    case Where::metadata:
      limits_.close();
      where_ = Where::header;
      break;
    case Where::offsets:
      if (offsets_ != place_.size()) fail_tensor("data_offsets are not two numbers");
      where_ = Where::tensor;
      break;
    case Where::ignored:
      limits_.close();
      if (limits_.depth() == 1) where_ = Where::tensor;
      break;
    default:
      where_ = where_ == Where::shape ? Where::tensor : Where::outside;
  }
  return true;
}

void HeaderReader::begin_entry(const Value& value) {
  const bool is_object = value.is("object");
  if (name_ == nullptr && !is_object) fail(path_, "__metadata__ is not an object but ", value.type);
  if (!is_object) fail_tensor("is not described by an object but by ", value.type);
  where_ = name_ == nullptr ? Where::metadata : Where::tensor;
  limits_.open();
}

void HeaderReader::begin_member(const Value& value) {
  switch (member_) {
    case Member::dtype:
      read_dtype(value);
      break;
    case Member::shape:
      if (!value.is("array")) fail_tensor("shape is not an array but ", value.type);
      where_ = Where::shape;
      break;
    case Member::offsets:
      if (!value.is("array")) fail_tensor("data_offsets are not two numbers");
      where_ = Where::offsets;
      break;
    case Member::other:
      begin_other(value);
      break;
  }
}

/// A value in a member that the format does not define.
void HeaderReader::begin_other(const Value& value) {
  limits_.value();
  if (!value.is("object") && !value.is("array")) return;
  limits_.open();
  where_ = Where::ignored;
}

void HeaderReader::read_dtype(const Value& value) {
  if (!value.is("string")) fail_tensor("dtype is not a string but ", value.type);
  const auto* const found =
      std::find_if(dtypes.begin(), dtypes.end(), [&](const Dtype& d) { return d.name == value.text; });
  if (found == dtypes.end()) fail_tensor("dtype ", in_quotes(value.text), " is unknown");
  tensor_->dtype = found->name;
  bits_ = found->bits;
}

std::uint64_t HeaderReader::whole(const char* member, const Value& value) const {
  const std::string quote = value.is("string") ? "\"" : "";
  if (!value.whole)
    fail_tensor(member, " holds ", quote, shown(value.text), quote, ", not an integer from 0 to 2^64 - 1");
  return *value.whole;
}

void HeaderReader::read_axis(const Value& value) {
  const std::uint64_t size = whole("shape", value);
  if (size > static_cast<std::uint64_t>(std::numeric_limits<Index>::max()))
    fail_tensor("shape holds ", size, ", too large a number");
  if (tensor_->shape.size() == max_axes) fail_tensor("shape has too many axes, the maximum is ", max_axes);
  tensor_->shape.push_back(static_cast<Index>(size));
}

void HeaderReader::read_offset(const Value& value) {
  const std::uint64_t offset = whole("data_offsets", value);
  if (offsets_ == place_.size()) fail_tensor("data_offsets are not two numbers");
  place_[offsets_++] = offset;
}

/// The number of bytes of the data, by dtype and shape.
std::uint64_t HeaderReader::bytes() const {
  const auto& [dtype, shape, offset, size] = *tensor_;
  std::uint64_t elements = 1, bits = 0;
  bool fits = true;
  for (const Index axis : shape)
    fits = fits && !__builtin_mul_overflow(elements, static_cast<std::uint64_t>(axis), &elements);
  if (!fits || __builtin_mul_overflow(elements, std::uint64_t{bits_}, &bits))
    fail_tensor("shape ", listed(shape), " of ", dtype, " overflows");
  if (bits % 8 != 0) fail_tensor("shape ", listed(shape), " of ", dtype, " is no whole number of bytes");
  return bits / 8;
}

void HeaderReader::finish_tensor() {
  constexpr std::array<const char*, 3> members{"dtype", "shape", "data_offsets"};
  for (std::size_t i = 0; i < members.size(); ++i)
    if (!has_[i]) fail_tensor("has no ", members[i]);
  const auto [begin, end] = place_;
  if (begin > end) fail_tensor("data_offsets begin at ", begin, ", behind their end ", end);
  if (end > data_bytes_) fail_tensor("data_offsets end at ", end, ", the file has ", data_bytes_, " bytes of data");
  const std::uint64_t size = bytes();
  if (end - begin != size) {
    fail_tensor("has ", end - begin, " bytes of data, shape ", listed(tensor_->shape), " of ", tensor_->dtype, " has ",
                size);
  }
  tensor_->offset = begin;
  tensor_->size = size;
}

}  // namespace

StoredTensors read_entries(std::string_view header, std::uint64_t data_bytes, const std::filesystem::path& path) {
  HeaderReader reader(data_bytes, path);
  json::sax_parse(header.begin(), header.end(), &reader);
  return reader.take();
}

}  // namespace headlane::models::internal
