#include "plugin/device_code.h"

#include <gtest/gtest.h>

#include <string>

#include "plugin/compiled_kernel.h"

namespace opwright {
namespace {

CodeObject code(const std::string& bytes, const std::string& target, bool host) {
  CodeObject object;
  object.name = "k";
  object.target = target;
  object.bytes = Blob::copy(bytes.data(), bytes.size());
  object.host = host;
  return object;
}

/// The header of an ELF file for a machine, and nothing else.
std::string elf(char machine) {
  std::string header(64, '\0');
  header.replace(0, 7, "\177ELF\2\1\1");
  header[16] = 3;
  header[18] = machine;
  return header;
}

TEST(DeviceCode, WhatDoesNotFitIsNamed) {
  const std::string ptx = ".version 8.0\n.target sm_90a, debug\n";
  EXPECT_EQ(code_fault(code(ptx, "sm_90a", false)), "");
  EXPECT_EQ(code_fault(code(ptx, "sm_90a", true)), "PTX for sm_90a");
  const std::string cubin = elf(static_cast<char>(190));
  EXPECT_EQ(code_fault(code(cubin, "sm_80", false)), "");
  EXPECT_EQ(code_fault(code(cubin, "sm_80", true)), "a cubin for sm_80");
  EXPECT_EQ(code_fault(code(elf(62), "x86-64", false)), "a shared object for 'x86-64'");
  const std::string fault = code_fault(code(elf(40), "arm", true));
  EXPECT_NE(fault.find("no shared object for this host: its ELF machine number is 40"),
            std::string::npos)
      << fault;
  for (const char* text : {"", "text", "\177ELF", "\n.target sm_90", ".version 8.0"})
    EXPECT_EQ(code_fault(code(text, "", false)), "neither an ELF file nor PTX") << text;
}

TEST(DeviceCode, ScratchIsPartOfTheLaunch) {
  KernelCode kernel;
  kernel.name = "k";
  kernel.grid[0] = Expr::symbol(0);
  kernel.scratch = {0, kernel.grid[0] * Expr(64)};
  const KernelLaunch launch = make_launch(kernel);
  ASSERT_EQ(launch.scratch.size(), 2U);
  const int64_t extents[] = {5};
  EXPECT_EQ(launch.expression(launch.scratch[0]).evaluate(extents), 0);
  EXPECT_EQ(launch.expression(launch.scratch[1]).evaluate(extents), 320);
}

TEST(DeviceCode, ChecksArePartOfTheLaunch) {
  KernelCode kernel;
  kernel.name = "k";
  const Expr a = Expr::symbol(0), b = Expr::symbol(1);
  kernel.checks = {{Expr::make(ExprOp::kEqual, a, b), "the extents differ"},
                   {Expr::make(ExprOp::kLess, a, 8), "too long"}};
  const KernelLaunch launch = make_launch(kernel);
  const auto fault = [&](int64_t first, int64_t second) -> std::string {
    const int64_t extents[] = {first, second};
    std::vector<int64_t> values(launch.program.size());
    evaluate(launch.program, extents, values);
    try {
      require_checks(launch, values, "l", "k");
    } catch (const std::exception& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(fault(3, 3), "");
  EXPECT_NE(fault(3, 4).find("layer 'l': compiled kernel 'k': the extents differ"),
            std::string::npos);
  EXPECT_NE(fault(9, 9).find("too long"), std::string::npos);
}

TEST(DeviceCode, TargetsServeGpus) {
  const auto serves = [](const char* target) { return gpus_text(served_gpus(target)); };
  EXPECT_EQ(serves("sm_90"), "GPUs of compute capability 9.0 to 9.9");
  EXPECT_EQ(serves("sm_86"), "GPUs of compute capability 8.6 to 8.9");
  EXPECT_EQ(serves("sm_90a"), "GPUs of compute capability 9.0");
  EXPECT_EQ(serves("compute_80"), "GPUs of compute capability 8.0 and newer");
  EXPECT_EQ(serves("compute_90a"), "GPUs of compute capability 9.0");
  EXPECT_EQ(serves("sm_100f"), "GPUs of compute capability 10.0 to 10.9");
  for (const char* none : {"", "sm_", "sm_9", "sm_90x", "compute_", "x86-64 avx2", "sm_90a "})
    EXPECT_FALSE(served_gpus(none)) << none;
}

TEST(DeviceCode, AnEngineServesWhatAllOfItsCodeDoes) {
  const auto serves = [](std::initializer_list<const char*> targets) {
    std::vector<CodeObject> code = {{"library.so", "x86-64", {}, true}};
    for (const char* target : targets) code.push_back({"kernel", target, {}, false});
    const auto range = served_gpus(code);
    return range ? gpus_text(range) : "no code for GPUs";
  };
  EXPECT_EQ(serves({}), "no code for GPUs");
  EXPECT_EQ(serves({"sm_90"}), "GPUs of compute capability 9.0 to 9.9");
  EXPECT_EQ(serves({"sm_90", "compute_80"}), "GPUs of compute capability 9.0 to 9.9");
  EXPECT_EQ(serves({"compute_75", "compute_80"}), "GPUs of compute capability 8.0 and newer");
  EXPECT_EQ(serves({"sm_90a", "sm_90"}), "GPUs of compute capability 9.0");
  EXPECT_EQ(serves({"sm_80", "sm_90"}), "no GPU");
}

TEST(DeviceCode, PtxSaysItsTargetItself) {
  const auto target = [](const std::string& bytes, const char* stated) {
    return device_target({"k", stated, Blob::copy(bytes.data(), bytes.size()), false});
  };
  EXPECT_EQ(target(".version 8.0\n.target sm_80\n", "sm_90"), "compute_80");
  EXPECT_EQ(target("no PTX", "sm_90"), "sm_90");
  EXPECT_EQ(target("//\n.version 8.0\n.target sm_90a, debug\n", ""), "compute_90a");
}

}  // namespace
}  // namespace opwright
