#include "backend/cuda/code_format.h"

#include <gtest/gtest.h>

#include <string>

namespace opwright::cuda {
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
  const CodeFormat& format = code_format();
  EXPECT_EQ(format.fault(code(ptx, "sm_90a", false)), "");
  EXPECT_EQ(format.describe(code(ptx, "sm_90a", true)), "PTX for sm_90a");
  const std::string cubin = elf(static_cast<char>(190));
  EXPECT_EQ(format.fault(code(cubin, "sm_80", false)), "");
  EXPECT_EQ(format.describe(code(cubin, "sm_80", true)), "a cubin for sm_80");
  EXPECT_EQ(format.fault(code(elf(62), "x86-64", false)), "a shared object for 'x86-64'");
  EXPECT_EQ(format.describe(code(elf(40), "arm", true)), "");
  for (const char* text : {"", "text", "\177ELF", "\n.target sm_90", ".version 8.0"})
    EXPECT_EQ(format.fault(code(text, "", false)), "neither an ELF file nor PTX") << text;
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
    return code_format().served(code);
  };
  EXPECT_EQ(serves({}), "");
  EXPECT_EQ(serves({"sm_90"}), "GPUs of compute capability 9.0 to 9.9");
  EXPECT_EQ(serves({"sm_90", "compute_80"}), "GPUs of compute capability 9.0 to 9.9");
  EXPECT_EQ(serves({"compute_75", "compute_80"}), "GPUs of compute capability 8.0 and newer");
  EXPECT_EQ(serves({"sm_90a", "sm_90"}), "GPUs of compute capability 9.0");
  EXPECT_EQ(serves({"sm_80", "sm_90"}), "no GPU");
}

TEST(DeviceCode, PtxSaysItsTargetItself) {
  const auto target = [](const std::string& bytes, const char* stated) {
    return code_format().target({"k", stated, Blob::copy(bytes.data(), bytes.size()), false});
  };
  EXPECT_EQ(target(".version 8.0\n.target sm_80\n", "sm_90"), "compute_80");
  EXPECT_EQ(target("no PTX", "sm_90"), "sm_90");
  EXPECT_EQ(target("//\n.version 8.0\n.target sm_90a, debug\n", ""), "compute_90a");
}

}  // namespace
}  // namespace opwright::cuda
