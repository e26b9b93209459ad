#include "io/safetensors.hpp"

#include "io/error.hpp"
#include "io/json_limits.hpp"
#include "io/safetensors_header.hpp"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <span>
#include <tuple>

namespace headlane::models::internal {
namespace {

static_assert(std::endian::native == std::endian::little,
              "safetensors files are little-endian, and are read as they are");

constexpr std::uint64_t max_header_bytes = 100'000'000;

std::string header_of(const InputFile& file) {
  std::uint64_t length = 0;
  if (file.size() < sizeof length) fail(file.path(), "has ", file.size(), " bytes, a safetensors file has at least 8");
  file.read(0, std::as_writable_bytes(std::span(&length, 1)));
  const std::uint64_t rest = file.size() - sizeof length;
  if (length > max_header_bytes)
    fail(file.path(), "the length of the header is ", length, " bytes, the maximum is ", max_header_bytes);
  if (length > rest) fail(file.path(), "the length of the header is ", length, " bytes, but only ", rest, " follow");
  std::string header(length, '\0');
  file.read(sizeof length, std::as_writable_bytes(std::span(header)), "header: ");
  return header;
}

/// Every byte belongs to exactly one tensor: otherwise a file could hide data or have two meanings.
void check_places(const StoredTensors& tensors, std::uint64_t data_bytes, const std::filesystem::path& path) {
  std::vector<std::tuple<std::uint64_t, std::uint64_t, std::string_view>> places;
  places.reserve(tensors.size());
  for (const auto& [name, tensor] : tensors) places.emplace_back(tensor.offset, tensor.offset + tensor.size, name);
  std::sort(places.begin(), places.end());
  std::uint64_t end = 0;
  for (const auto& [begin, next_end, name] : places) {
    if (begin < end)
      fail(path, "tensor ", in_quotes(name), ": overlaps another one: it begins at ", begin, ", before ", end);
    if (begin > end)
      fail(path, "tensor ", in_quotes(name), ": begins at ", begin, ", but the data before it ends at ", end);
    end = next_end;
  }
  if (end != data_bytes) fail(path, "has ", data_bytes, " bytes of data, the tensors end at ", end);
}

}  // namespace

StoredTensors parse_header(std::string_view header, std::uint64_t data_bytes, const std::filesystem::path& path) {
  if (!header.starts_with('{')) fail(path, "the header does not begin with '{'");
  check_no_nul(header, path);
  StoredTensors tensors = read_entries(header, data_bytes, path);
  check_places(tensors, data_bytes, path);
  const std::uint64_t data = sizeof(std::uint64_t) + header.size();
  for (auto& [name, tensor] : tensors) tensor.offset += data;
  return tensors;
}

StoredTensors read_safetensors(const InputFile& file) {
  const std::string header = header_of(file);
  return parse_header(header, file.size() - sizeof(std::uint64_t) - header.size(), file.path());
}

}  // namespace headlane::models::internal
