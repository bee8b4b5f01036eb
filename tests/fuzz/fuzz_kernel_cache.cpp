// Damages the files of the cache of compiled code: what is found there is what was compiled, or it
// is compiled again.

#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "../../src/backend/cuda/kernel_cache.h"
#include "base/error.h"
#include "run/script.h"

namespace {

namespace fs = std::filesystem;
using opwright::Blob;

constexpr std::string_view kParts[] = {"source", "sm_90"};
constexpr char kCode[] = "the code that was compiled for these parts";

Blob find(const fs::path& folder, bool& is_compiled) {
  opwright::cuda::KernelCache cache(folder.string());
  is_compiled = false;
  return cache.find_or_compile(kParts, [&] {
    is_compiled = true;
    return Blob::copy(kCode, sizeof(kCode));
  });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // One that is the user's own, in which the cache makes its folder.
  static const fs::path own = [] {
    const char* base = std::getenv("TMPDIR");
    std::string path = std::string(base != nullptr ? base : "/tmp") + "/fuzz_kernel_cache.XXXXXX";
    if (mkdtemp(path.data()) == nullptr) std::abort();
    return path;
  }();
  static const bool is_removed = std::atexit([] { fs::remove_all(own); }) == 0;
  static const fs::path folder = own / "kernels";
  if (!is_removed) std::abort();
  opwright::fuzz::Script script(data, size);
  bool is_compiled = false;
  // A whole file at first.
  fs::path path;
  find(folder, is_compiled);
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.is_regular_file() && entry.path().extension() != ".lock") path = entry.path();
  if (path.empty()) std::abort();
  std::vector<char> file;
  {
    std::ifstream stream(path, std::ios::binary);
    file.assign(std::istreambuf_iterator<char>(stream), {});
  }
  const std::vector<char> whole = file;
  if (script.chance(4)) file.resize(script.below(file.size() + 1));
  if (script.chance(4)) file.resize(file.size() + script.below(40));
  while (!script.is_at_end() && !file.empty()) {
    const size_t at = script.below(file.size());
    file[at] = static_cast<char>(script.byte());
  }
  {
    std::ofstream stream(path, std::ios::binary | std::ios::trunc);
    stream.write(file.data(), static_cast<std::streamsize>(file.size()));
  }
  const Blob code = find(folder, is_compiled);
  if (code.size() != sizeof(kCode) || std::memcmp(code.data(), kCode, sizeof(kCode)) != 0)
    std::abort();
  if (!is_compiled && file != whole) std::abort();
  return 0;
}
