#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>

#include "backend/cuda/kernel_cache.h"
#include "backend/cuda/nvrtc.h"
#include "cuda_device/emulated.h"
#include "opwright/runtime.h"

namespace opwright::cuda {
namespace {

namespace fs = std::filesystem;

TEST(CudaCode, IsLoadedOncePerDeviceAndContent) {
  const CudaDevice& device = gpu();
  const DeviceScope scope(device);
  const CodeObject code = compile_cuda(device, kScale, "test");
  EXPECT_EQ(code.target, "sm_90");
  CodeObject same = code;
  same.bytes = Blob::copy(code.bytes.data(), code.bytes.size());
  const long loaded = calls("cuModuleLoadDataEx"), unloaded = calls("cuModuleUnload");
  auto first = device.load_function(code, "scale");
  auto second = device.load_function(same, "scale");
  EXPECT_EQ(calls("cuModuleLoadDataEx"), loaded + 1);
  EXPECT_EQ(first->num_parameters(), 4);
  auto elsewhere = gpu(1).load_function(code, "scale");
  EXPECT_EQ(calls("cuModuleLoadDataEx"), loaded + 2);
  first.reset();
  EXPECT_EQ(calls("cuModuleUnload"), unloaded);
  second.reset();
  EXPECT_EQ(calls("cuModuleUnload"), unloaded + 1);
}

TEST(CudaCode, IncludesDeviceSources) {
  std::set<std::string> names, all;
  for (const gpu::DeviceSource& each : gpu::included_sources(gpu::include("cluster.cuh")))
    names.insert(each.name);
  EXPECT_EQ(names, (std::set<std::string>{"cluster.cuh", "copies.cuh"}));
  EXPECT_TRUE(gpu::included_sources("// cluster.cuh\n").empty());
  // What one of them includes is there.
  for (const gpu::DeviceSource& each : gpu::device_sources()) all.insert(each.name);
  for (const gpu::DeviceSource& each : gpu::device_sources()) {
    const std::string text = each.text;
    for (size_t at = 0; (at = text.find("#include \"", at)) != std::string::npos;) {
      at += 10;
      const std::string name = text.substr(at, text.find('"', at) - at);
      EXPECT_TRUE(all.contains(name)) << each.name << " includes " << name;
    }
  }
}

TEST(CudaCode, KeepsTheLinesOfHeaders) {
  const gpu::DeviceSource headers[] = {{"broken.cuh", "\n\nint broken = nothing;\n"}};
  const std::string text = message(
      [&] { Nvrtc::get().compile("#include \"broken.cuh\"\n", "kernel x", "sm_90", headers, {}); });
  EXPECT_NE(text.find("broken.cuh:3:"), std::string::npos) << text;
}

TEST(CudaCode, IsPtxWhereOlderDevicesAreToRunIt) {
  const CudaDevice& device = gpu();
  const CodeObject code =
      compile_cuda(device, kScale, "test", HardwareCompatibilityLevel::kAMPERE_PLUS);
  EXPECT_EQ(code.target, "compute_80");
  EXPECT_EQ(device.load_function(code, "scale")->num_parameters(), 4);
  EXPECT_EQ(
      compile_cuda(device, kScale, "test", HardwareCompatibilityLevel::kSAME_COMPUTE_CAPABILITY)
          .target,
      "sm_90");
}

TEST(CudaCode, MayUseWhatOneArchitectureHas) {
  const CudaDevice& device = gpu();
  const CodeObject code = compile_cuda(device, kScale, "test", {}, true);
  EXPECT_EQ(code.target, "sm_90a");
  EXPECT_TRUE(device.runs(code.target));
  EXPECT_EQ(device.load_function(code, "scale")->num_parameters(), 4);
  const std::string text = message([&] {
    compile_cuda(device, kScale, "test", HardwareCompatibilityLevel::kAMPERE_PLUS, true);
  });
  EXPECT_NE(text.find("test runs only on sm_90, "), std::string::npos) << text;
}

TEST(CudaCode, ThatHasNoSuchKernelIsRefused) {
  const CudaDevice& device = gpu();
  const CodeObject code = compile_cuda(device, kScale, "test");
  const std::string text = message([&] { device.load_function(code, "missing"); });
  EXPECT_NE(text.find("'test' has no kernel of the name 'missing'"), std::string::npos) << text;
}

TEST(CudaCode, ForAnotherArchitectureIsRefusedWithBoth) {
  const CudaDevice& device = gpu();
  CodeObject code{.name = "plugin", .target = "sm_80", .bytes = {}, .host = false};
  code.bytes = Nvrtc::get().compile(kScale, "plugin", "sm_80", {}, {});
  const std::string text = message([&] { device.load_function(code, "scale"); });
  EXPECT_NE(text.find("'plugin' cannot be loaded"), std::string::npos) << text;
  EXPECT_NE(text.find("for sm_80 and the GPU is sm_90"), std::string::npos) << text;
}

TEST(CudaCode, PtxIsCompiledByTheDriver) {
  const CudaDevice& device = gpu();
  CodeObject code{.name = "ptx", .target = "compute_80", .bytes = {}, .host = false};
  code.bytes = Nvrtc::get().compile(kScale, "ptx", "compute_80", {}, {});
  EXPECT_EQ(device.load_function(code, "scale")->num_parameters(), 4);
}

TEST(CudaCode, SharedMemoryBeyondTheDevicesIsRefused) {
  const CudaDevice& device = gpu();
  const DeviceScope scope(device);
  const Scale scale(device);
  const long set = calls("cuFuncSetAttribute");
  scale.function->allow_shared_memory(48 * 1024);
  EXPECT_EQ(calls("cuFuncSetAttribute"), set);
  scale.function->allow_shared_memory(100 * 1024);
  EXPECT_EQ(calls("cuFuncSetAttribute"), set + 1);
  const std::string text = message([&] { scale.function->allow_shared_memory(1 << 20); });
  EXPECT_NE(text.find("1048576 bytes of dynamic shared memory"), std::string::npos) << text;
  EXPECT_NE(text.find(std::to_string(device.max_shared_memory())), std::string::npos) << text;
}

TEST(CudaCode, ALaunchThatCannotBeNamesTheKernelAndItsShape) {
  const CudaDevice& device = gpu();
  const DeviceScope scope(device);
  const Scale scale(device);
  void* none[4] = {};
  float* pointer = nullptr;
  float factor = 1;
  int n = 0;
  none[0] = &pointer, none[1] = &factor, none[2] = &n, none[3] = &pointer;
  const std::string text = message([&] {
    scale.function->launch({.grid = {1, 1, 1}, .block = {4096, 1, 1}}, none, nullptr);
  });
  EXPECT_NE(text.find("kernel 'scale'"), std::string::npos) << text;
  EXPECT_NE(text.find("4096 x 1 x 1 threads"), std::string::npos) << text;
}

TEST(CudaNvrtc, QuotesTheCompilerWhereItFails) {
  const std::string text =
      message([] { Nvrtc::get().compile("this is no code", "kernel x", "sm_90", {}, {}); });
  EXPECT_TRUE(text.starts_with("kernel x does not compile for sm_90")) << text;
  EXPECT_NE(text.find("error"), std::string::npos) << text;
}

TEST(CudaNvrtc, CompilesPtxForGpusThatItDoesNotKnow) {
  EXPECT_EQ(Nvrtc::get().target_for(90), "sm_90");
  EXPECT_TRUE(Nvrtc::get().target_for(999).starts_with("compute_"));
  EXPECT_THROW(Nvrtc::get().target_for(10), Error);
}

/// Exits after saying what NVRTC there is in this environment.
[[noreturn]] void tell_nvrtc(const char* file, const char* path) {
  setenv("OPWRIGHT_NVRTC", file, 1);
  setenv("OPWRIGHT_CUDA_PATH", path, 1);
  const std::string text = message([] { fail(Nvrtc::get().identity()); });
  fputs(text.c_str(), stderr);
  exit(0);
}

TEST(CudaNvrtcDeathTest, ThatIsMissingNamesThePackage) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // in a process that has not loaded it
  EXPECT_EXIT(tell_nvrtc("/nowhere/libnvrtc.so.13", ""), ::testing::ExitedWithCode(0),
              "/nowhere/libnvrtc.so.13.*pip install nvidia-cuda-nvrtc");
}

TEST(CudaNvrtcDeathTest, IsFoundInTheFoldersThatAreNamed) {
  if (dlopen("libnvrtc.so.13", RTLD_LAZY) != nullptr || dlopen("libnvrtc.so.12", RTLD_LAZY))
    GTEST_SKIP() << "there is one that comes first";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(tell_nvrtc("", ":/nowhere:" OPWRIGHT_EMULATION_DIR ":"), ::testing::ExitedWithCode(0),
              "NVRTC 13.*" OPWRIGHT_EMULATION_DIR);
}

/// A folder of its own, and a compiler that counts.
class CudaKernelCache : public ::testing::Test {
 protected:
  CudaKernelCache() : folder_(fs::temp_directory_path() / "opwright-cache-XXXXXX") {
    folder_ = mkdtemp(folder_.data());
  }
  ~CudaKernelCache() override { fs::remove_all(folder_); }
  std::string find(KernelCache& cache, std::string_view source, std::string_view target = "sm_90") {
    const std::array parts = {source, target};
    const Blob code = cache.find_or_compile(parts, [&] {
      ++compiled_;
      const std::string made = "code of " + std::string(source) + " for " + std::string(target);
      return Blob::copy(made.data(), made.size());
    });
    return std::string(code.as<char>(), code.size());
  }
  fs::path only_file() const {
    const auto files = fs::directory_iterator(folder_);
    EXPECT_NE(begin(files), end(files));
    return begin(files)->path();
  }
  std::string folder_;
  int compiled_ = 0;
};

TEST_F(CudaKernelCache, KeepsCodeInMemoryAndOnDisk) {
  KernelCache first(folder_);
  EXPECT_EQ(find(first, "a"), "code of a for sm_90");
  EXPECT_EQ(find(first, "a"), "code of a for sm_90");
  EXPECT_EQ(compiled_, 1);
  KernelCache second(folder_);  // as of another process
  EXPECT_EQ(find(second, "a"), "code of a for sm_90");
  EXPECT_EQ(compiled_, 1);
}

TEST_F(CudaKernelCache, TellsAllPartsApart) {
  KernelCache cache(folder_);
  find(cache, "a");
  find(cache, "a", "sm_80");
  find(cache, "b");
  find(cache, "as", "m_90");
  EXPECT_EQ(compiled_, 4);
}

TEST_F(CudaKernelCache, CompilesDamagedFilesAgain) {
  KernelCache first(folder_);
  find(first, "a");
  const fs::path file = only_file();
  const auto size = fs::file_size(file);
  for (const bool shorten : {false, true}) {
    if (shorten) {
      fs::resize_file(file, size - 1);
    } else {
      std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
      stream.seekp(20);
      stream.put('\x7f');
    }
    const int before = compiled_;
    KernelCache next(folder_);
    EXPECT_EQ(find(next, "a"), "code of a for sm_90");
    EXPECT_EQ(compiled_, before + 1);
    EXPECT_EQ(fs::file_size(file), size);  // and mended
  }
}

TEST_F(CudaKernelCache, TakesNoOtherKernelsFile) {
  KernelCache first(folder_);
  find(first, "a");
  const fs::path a = only_file();
  fs::rename(a, folder_ + "/../" + a.filename().string());
  find(first, "b");
  const fs::path b = only_file();
  fs::rename(folder_ + "/../" + a.filename().string(), b);  // a's code under b's name
  KernelCache next(folder_);
  EXPECT_EQ(find(next, "b"), "code of b for sm_90");
  EXPECT_EQ(compiled_, 3);
}

TEST_F(CudaKernelCache, NeedsNoFolder) {
  const std::string file = folder_ + "/file";
  std::ofstream(file) << "in the way";
  for (const std::string& folder : {std::string(), file + "/kernels"}) {
    KernelCache cache(folder);
    EXPECT_EQ(find(cache, "a"), "code of a for sm_90");
  }
  EXPECT_EQ(compiled_, 2);
}

}  // namespace
}  // namespace opwright::cuda
