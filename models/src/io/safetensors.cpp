#include "io/safetensors.hpp"

#include "io/json_limits.hpp"
#include "io/safetensors_header.hpp"
#include "io/tensor_checks.hpp"

#include <bit>
#include <cstddef>
#include <span>

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

}  // namespace

StoredTensors parse_header(std::string_view header, std::uint64_t data_bytes, const std::filesystem::path& path) {
  if (!header.starts_with('{')) fail(path, "the header does not begin with '{'");
  check_no_nul(header, path);
  StoredTensors tensors = read_entries(header, data_bytes, path);
  check_places(tensors, data_bytes, 1, path);
  const std::uint64_t data = sizeof(std::uint64_t) + header.size();
  for (auto& [name, tensor] : tensors) tensor.offset += data;
  return tensors;
}

StoredTensors read_safetensors(const InputFile& file) {
  const std::string header = header_of(file);
  return parse_header(header, file.size() - sizeof(std::uint64_t) - header.size(), file.path());
}

}  // namespace headlane::models::internal
