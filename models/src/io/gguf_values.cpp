// Decodes the metadata of GGUF, which read_gguf() has checked.
#include "io/gguf_values.hpp"

#include "io/error.hpp"
#include "io/gguf_header.hpp"

#include <cstring>
#include <limits>

namespace headlane::models::internal {
namespace {

template <class T>
T take(const char*& from) {
  T x;
  std::memcpy(&x, from, sizeof x);
  from += sizeof x;
  return x;
}

std::int64_t take_integer(const char*& from, std::uint32_t type, const std::filesystem::path& path,
                          std::string_view key) {
  switch (type) {
    case gguf_uint8:
      return take<std::uint8_t>(from);
    case gguf_int8:
      return take<std::int8_t>(from);
    case gguf_uint16:
      return take<std::uint16_t>(from);
    case gguf_int16:
      return take<std::int16_t>(from);
    case gguf_uint32:
      return take<std::uint32_t>(from);
    case gguf_int32:
      return take<std::int32_t>(from);
    case gguf_int64:
      return take<std::int64_t>(from);
    default: {
      const auto x = take<std::uint64_t>(from);
      if (x > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
        fail(path, "key ", in_quotes(key), ": holds ", x, ", too large a number");
      return static_cast<std::int64_t>(x);
    }
  }
}

/// The value, or all elements of the array; take() decodes one.
template <class T, class F>
GgufValue all_of(const GgufField& field, const F& take_one) {
  if (!field.is_array) return T(take_one());
  std::vector<T> values;
  values.reserve(field.count);
  for (std::uint64_t i = 0; i < field.count; ++i) values.push_back(take_one());
  return values;
}

}  // namespace

GgufValue value_of(const GgufHeader& header, const GgufField& field, const std::filesystem::path& path,
                   std::string_view key) {
  const char* from = header.bytes.data() + field.position;
  switch (field.type) {
    case gguf_bool:
      return all_of<bool>(field, [&] { return take<std::uint8_t>(from) != 0; });
    case gguf_float32:
      return all_of<double>(field, [&] { return double{take<float>(from)}; });
    case gguf_float64:
      return all_of<double>(field, [&] { return take<double>(from); });
    case gguf_string:
      return all_of<std::string>(field, [&] {
        const auto length = take<std::uint64_t>(from);
        from += length;
        return std::string(from - length, length);
      });
    default:
      return all_of<std::int64_t>(field, [&] { return take_integer(from, field.type, path, key); });
  }
}

}  // namespace headlane::models::internal
