#include "safetensors.hpp"

#include "error.hpp"
#include "json.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>
#include <tuple>
#include <utility>

namespace headlane::models {
namespace {

using nlohmann::json;

static_assert(std::endian::native == std::endian::little,
              "safetensors files are little-endian, and are read as they are");

constexpr std::uint64_t most_header_bytes = 100'000'000;  // the reference implementation's limit

struct Dtype {
  std::string_view name;
  unsigned bits;
};

constexpr std::array<Dtype, 22> dtypes{
    {{"F32", 32},        {"F16", 16},    {"BF16", 16},   {"F64", 64},    {"C64", 64},    {"I64", 64},
     {"I32", 32},        {"I16", 16},    {"I8", 8},      {"U64", 64},    {"U32", 32},    {"U16", 16},
     {"U8", 8},          {"BOOL", 8},    {"F8_E4M3", 8}, {"F8_E5M2", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8},
     {"F8_E5M2FNUZ", 8}, {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"F4", 4}}};

/// A tensor's entry in the header, for the functions that read it.
struct Entry {
  const std::filesystem::path& path;
  const std::string& name;
  const json& value;

  template <class... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    models::fail(path, "tensor ", in_quotes(name), ": ", parts...);
  }

  [[nodiscard]] const json& member(const char* key) const {
    const auto found = value.find(key);
    if (found == value.end()) fail("has no ", key);
    return *found;
  }

  [[nodiscard]] std::uint64_t number(const char* key, const json& number) const {
    if (!number.is_number_unsigned()) fail(key, " holds ", shown(number.dump()), ", not an integer from 0 to 2^64 - 1");
    return number.get<std::uint64_t>();
  }
};

std::string_view header_of(std::span<const std::byte> file, const std::filesystem::path& path) {
  std::uint64_t length = 0;
  if (file.size() < sizeof length) fail(path, "has ", file.size(), " bytes, a safetensors file has at least 8");
  std::memcpy(&length, file.data(), sizeof length);
  const std::uint64_t rest = file.size() - sizeof length;
  if (length > most_header_bytes)
    fail(path, "the header is said to have ", length, " bytes, ", most_header_bytes, " are the most");
  if (length > rest)
    fail(path, "the header is said to have ", length, " bytes, the file has ", rest, " behind its length");
  const std::string_view header(reinterpret_cast<const char*>(file.data()) + sizeof length, length);
  if (!header.starts_with('{')) fail(path, "the header does not begin with '{'");
  return header;
}

void check_metadata(const json& metadata, const std::filesystem::path& path) {
  if (!metadata.is_object()) fail(path, "__metadata__ is not an object but ", metadata.type_name());
  for (const auto& [key, value] : metadata.items())
    if (!value.is_string()) fail(path, "__metadata__ ", in_quotes(key), " is not a string but ", value.type_name());
}

const Dtype& dtype_of(const Entry& entry) {
  const json& dtype = entry.member("dtype");
  if (!dtype.is_string()) entry.fail("dtype is not a string but ", dtype.type_name());
  const auto& name = dtype.get_ref<const std::string&>();
  const auto* const found = std::find_if(dtypes.begin(), dtypes.end(), [&](const Dtype& d) { return d.name == name; });
  if (found == dtypes.end()) entry.fail("dtype ", in_quotes(name), " is unknown");
  return *found;
}

std::vector<Index> shape_of(const Entry& entry) {
  const json& shape = entry.member("shape");
  if (!shape.is_array()) entry.fail("shape is not an array but ", shape.type_name());
  std::vector<Index> result;
  for (const json& axis : shape) {
    const std::uint64_t size = entry.number("shape", axis);
    if (size > static_cast<std::uint64_t>(std::numeric_limits<Index>::max()))
      entry.fail("shape holds ", size, ", too large a number");
    result.push_back(static_cast<Index>(size));
  }
  return result;
}

std::uint64_t bytes_of(const Entry& entry, const Dtype& dtype, const std::vector<Index>& shape) {
  std::uint64_t elements = 1, bits = 0;
  bool fits = true;
  for (const Index size : shape)
    fits = fits && !__builtin_mul_overflow(elements, static_cast<std::uint64_t>(size), &elements);
  if (!fits || __builtin_mul_overflow(elements, std::uint64_t{dtype.bits}, &bits))
    entry.fail("shape ", listed(shape), " of ", dtype.name, " overflows");
  if (bits % 8 != 0) entry.fail("shape ", listed(shape), " of ", dtype.name, " is no whole number of bytes");
  return bits / 8;
}

/// Of the data of a tensor, relative to the data of all.
struct Place {
  std::uint64_t begin, end;
};

Place place_of(const Entry& entry) {
  const json& offsets = entry.member("data_offsets");
  if (!offsets.is_array() || offsets.size() != 2) entry.fail("data_offsets are not two numbers");
  return {entry.number("data_offsets", offsets[0]), entry.number("data_offsets", offsets[1])};
}

/// What the header says about one tensor, checked against what there is.
StoredTensor read_entry(const Entry& entry, std::span<const std::byte> data, Place& place) {
  if (!entry.value.is_object()) entry.fail("is not described by an object but by ", entry.value.type_name());
  const Dtype& dtype = dtype_of(entry);
  StoredTensor result{dtype.name, shape_of(entry), {}};
  place = place_of(entry);
  const auto [begin, end] = place;
  if (begin > end) entry.fail("data_offsets begin at ", begin, ", behind their end ", end);
  if (end > data.size()) entry.fail("data_offsets end at ", end, ", the file has ", data.size(), " bytes of data");
  const std::uint64_t bytes = bytes_of(entry, dtype, result.shape);
  if (end - begin != bytes) {
    entry.fail("has ", end - begin, " bytes of data, shape ", listed(result.shape), " of ", dtype.name, " has ", bytes);
  }
  result.bytes = data.subspan(begin, bytes);
  return result;
}

}  // namespace

StoredTensors parse_safetensors(std::span<const std::byte> file, const std::filesystem::path& path) {
  const std::string_view text = header_of(file, path);
  const auto data = file.subspan(sizeof(std::uint64_t) + text.size());
  const json header = parse_json(text, path);

  StoredTensors result;
  std::vector<std::tuple<std::uint64_t, std::uint64_t, std::string_view>> places;
  for (const auto& [name, value] : header.items()) {
    if (name == "__metadata__") {
      check_metadata(value, path);
      continue;
    }
    Place place{};
    const auto at = result.emplace(name, read_entry({path, name, value}, data, place)).first;
    places.emplace_back(place.begin, place.end, at->first);
  }

  // No byte belongs to two tensors or to none: otherwise a file could hide something, or be two things at once.
  std::sort(places.begin(), places.end());
  std::uint64_t end = 0;
  for (const auto& [begin, next_end, name] : places) {
    if (begin < end)
      fail(path, "tensor ", in_quotes(name), ": overlaps another one: begins at ", begin, ", before ", end);
    if (begin > end) fail(path, "tensor ", in_quotes(name), ": begins at ", begin, ", the data before it end at ", end);
    end = next_end;
  }
  if (end != data.size()) fail(path, "has ", data.size(), " bytes of data, the tensors end at ", end);
  return result;
}

}  // namespace headlane::models
