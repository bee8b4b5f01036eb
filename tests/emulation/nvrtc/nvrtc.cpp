// NVRTC's interface. A "cubin" is a header and a shared object for the host. PTX contains the same
// as a comment.

#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "driver/kernel_image.h"
#include "nvrtc/compile.h"

namespace emulation {
namespace {

enum Result {
  kSuccess = 0,
  kInvalidInput = 3,
  kInvalidProgram = 4,
  kInvalidOption = 5,
  kCompilation = 6,
  kNoNamesAfterCompilation = 8,
  kNoLoweredNamesBeforeCompilation = 9,
  kNameExpressionNotValid = 10,
  kCancelled = 16,
};

constexpr int kArchitectures[] = {75, 80, 86, 87, 88, 89, 90, 100, 103, 110, 120, 121};

struct Program {
  Request request;
  bool compiled = false;
  /// Whether the option names a real architecture (sm_90). Only then is there a cubin.
  bool real = true;
  std::string log, cubin, ptx;
  std::map<std::string, std::string> lowered;
};

std::atomic<long> compilations{0};

bool take_architecture(Program& program, const std::string& value) {
  size_t digits = value.find('_');
  if (digits == value.npos) return false;
  int architecture = std::atoi(value.c_str() + digits + 1);
  program.real = value.compare(0, 3, "sm_") == 0;
  program.request.architecture = architecture;
  return (program.real || value.compare(0, 8, "compute_") == 0) &&
         std::count(std::begin(kArchitectures), std::end(kArchitectures), architecture);
}

/// The value of an option in either spelling; null for another option.
const char* value_of(const std::string& option, const char* name) {
  size_t length = std::strlen(name);
  return option.compare(0, length, name) == 0 ? option.c_str() + length : nullptr;
}

bool take_option(Program& program, const std::string& option) {
  for (const char* name : {"--gpu-architecture=", "-arch=", "-arch ", "--gpu-architecture "}) {
    if (const char* value = value_of(option, name)) return take_architecture(program, value);
  }
  struct Spelling {
    const char *ours, *theirs;
  };
  constexpr Spelling kSpellings[] = {
      {"-D", "--define-macro="},
      {"-U", "--undefine-macro="},
      {"-I", "--include-path="},
      {"-std=", "--std="},
      {"-D", "-D"},
      {"-U", "-U"},
      {"-I", "-I"},
      {"-std=", "-std="},
  };
  for (const Spelling& spelling : kSpellings) {
    if (const char* value = value_of(option, spelling.theirs)) {
      program.request.options.push_back(spelling.ours + std::string(value));
      return true;
    }
  }
  // Options that have no effect on the host.
  for (const char* name : {"--use_fast_math",
                           "-use_fast_math",
                           "--fmad",
                           "-fmad",
                           "--ftz",
                           "-ftz",
                           "--prec-",
                           "-prec-",
                           "-default-device",
                           "--device-as-default",
                           "-dopt",
                           "--dopt",
                           "-lineinfo",
                           "--generate-line-info",
                           "-G",
                           "--device-debug",
                           "--maxrregcount",
                           "-maxrregcount",
                           "-w",
                           "--disable-warnings",
                           "--restrict",
                           "-restrict",
                           "--extra-device-vectorization",
                           "--relocatable-device-code",
                           "-rdc",
                           "-Xptxas",
                           "--ptxas-options",
                           "--diag-",
                           "-diag-",
                           "--minimal",
                           "-minimal",
                           "--split-compile",
                           "--no-"}) {
    if (value_of(option, name)) return true;
  }
  return false;
}

std::string make_cubin(const std::string& library, int architecture) {
  CubinHeader header = {};
  std::memcpy(header.identification,
              "\x7f"
              "ELF\x02\x01\x01\x41\x08"
              "opwrigh",
              16);
  header.type = 2;
  header.machine = kMachineCuda;
  header.version = 1;
  header.section_headers = sizeof(header) + library.size();
  header.flags = static_cast<uint32_t>(architecture << 16 | 0x500 | architecture);
  header.header_size = sizeof(header);
  header.program_header_size = 56;
  header.section_header_size = 64;
  return std::string(reinterpret_cast<const char*>(&header), sizeof(header)) + library;
}

std::string parameter_text(const Parameter& parameter, const std::string& name) {
  switch (parameter.size) {
    case 1:
      return ".param .u8 " + name;
    case 2:
      return ".param .u16 " + name;
    case 4:
      return (parameter.floating ? ".param .f32 " : ".param .u32 ") + name;
    case 8:
      return (parameter.floating ? ".param .f64 " : ".param .u64 ") + name;
    default:
      return ".param .align 8 .b8 " + name + "[" + std::to_string(parameter.size) + "]";
  }
}

std::string make_ptx(const std::string& library, int architecture, const Table& table,
                     const std::vector<std::string>& names, bool waits) {
  std::string text =
      ".version 9.0\n.target sm_" + std::to_string(architecture) + "\n.address_size 64\n";
  for (int i = 0; i < table.count; ++i) {
    text += ".visible .entry " + names[i] + "(";
    for (int p = 0; p < table.entries[i].parameter_count; ++p) {
      text +=
          std::string(p ? "," : "") + "\n\t" +
          parameter_text(table.entries[i].parameters[p], names[i] + "_param_" + std::to_string(p));
    }
    text += "\n)\n{\n";
    // The kernel's work is not known here, so it reads all of its parameters.
    for (int p = 0; p < table.entries[i].parameter_count; ++p)
      text += "\tld.param.u8 %rs0, [" + names[i] + "_param_" + std::to_string(p) + "];\n";
    if (waits) text += "\tgriddepcontrol.wait;\n";
    text += "\tret;\n}\n";
  }
  constexpr size_t kLine = 4096;
  constexpr char kDigits[] = "0123456789abcdef";
  for (size_t at = 0; at < library.size(); at += kLine) {
    text += kPtxPayload;
    for (size_t i = at; i < std::min(library.size(), at + kLine); ++i) {
      text += kDigits[static_cast<unsigned char>(library[i]) >> 4];
      text += kDigits[library[i] & 15];
    }
    text += '\n';
  }
  return text;
}

/// Reads the kernels' symbols out of the library and makes the images.
bool make_images(Program& program, const std::string& bytes) {
  int file = memfd_create("emulated kernels", MFD_CLOEXEC);
  if (write(file, bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size())) return false;
  // The process may already have loaded another library under this descriptor's plain name.
  static std::atomic<int> unique{0};
  std::string path =
      "/proc/self/fd/" + std::string(1 + unique++ % 2000, '/') + std::to_string(file);
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  close(file);
  if (!library) {
    program.log += dlerror();
    return false;
  }
  const auto& table = *static_cast<const Table*>(dlsym(library, kTableSymbol));
  std::vector<std::string> names;
  for (int i = 0; i < table.count; ++i) {
    Dl_info symbol = {};
    dladdr(table.entries[i].function, &symbol);
    names.push_back(symbol.dli_saddr == table.entries[i].function ? symbol.dli_sname
                                                                  : table.entries[i].name);
    program.lowered[table.entries[i].name] = names.back();
  }
  int architecture = program.request.architecture;
  if (program.real) program.cubin = make_cubin(bytes, architecture);
  const auto has_wait = [](const std::string& text) {
    return text.find("griddepcontrol.wait") != std::string::npos;
  };
  bool waits = has_wait(program.request.source);
  for (const Header& header : program.request.headers) waits |= has_wait(header.content);
  program.ptx = make_ptx(bytes, architecture, table, names, waits);
  dlclose(library);
  return true;
}

Result compile_program(Program& program, int count, const char* const* options) {
  ++compilations;
  program.log.clear();
  program.request.options.clear();
  program.request.architecture = 75;
  program.compiled = true;
  for (int i = 0; i < count; ++i) {
    std::string option = options[i];
    bool has_value = option == "-arch" || option == "--gpu-architecture" || option == "-I" ||
                     option == "-D" || option == "-std" || option == "--std";
    if (has_value && i + 1 < count) {
      option += (option[1] == 'I' || option[1] == 'D' ? "" : "=") + std::string(options[++i]);
    }
    if (!take_option(program, option)) {
      program.log = "nvrtc: error: invalid value for or unrecognized option " + option + "\n";
      return kInvalidOption;
    }
  }
  CompiledLibrary library = compile(program.request);
  program.log = library.log;
  if (library.cancelled) return kCancelled;
  return library.succeeded && make_images(program, library.bytes) ? kSuccess : kCompilation;
}

Program* as_program(void* handle) { return static_cast<Program*>(handle); }

Result take_text(const std::string& text, char* out) {
  std::memcpy(out, text.c_str(), text.size() + 1);
  return kSuccess;
}

}  // namespace
}  // namespace emulation

using namespace emulation;

extern "C" {

int nvrtcVersion(int* major, int* minor) {
  *major = 13;
  *minor = 0;
  return kSuccess;
}

const char* nvrtcGetErrorString(int result) {
  constexpr const char* kNames[] = {"NVRTC_SUCCESS",
                                    "NVRTC_ERROR_OUT_OF_MEMORY",
                                    "NVRTC_ERROR_PROGRAM_CREATION_FAILURE",
                                    "NVRTC_ERROR_INVALID_INPUT",
                                    "NVRTC_ERROR_INVALID_PROGRAM",
                                    "NVRTC_ERROR_INVALID_OPTION",
                                    "NVRTC_ERROR_COMPILATION",
                                    "NVRTC_ERROR_BUILTIN_OPERATION_FAILURE",
                                    "NVRTC_ERROR_NO_NAME_EXPRESSIONS_AFTER_COMPILATION",
                                    "NVRTC_ERROR_NO_LOWERED_NAMES_BEFORE_COMPILATION",
                                    "NVRTC_ERROR_NAME_EXPRESSION_NOT_VALID",
                                    "NVRTC_ERROR_INTERNAL_ERROR"};
  if (result == kCancelled) return "NVRTC_ERROR_CANCELLED";
  return result >= 0 && result < 12 ? kNames[result] : "NVRTC_ERROR unknown";
}

int nvrtcGetNumSupportedArchs(int* count) {
  *count = std::size(kArchitectures);
  return kSuccess;
}

int nvrtcGetSupportedArchs(int* architectures) {
  std::copy(std::begin(kArchitectures), std::end(kArchitectures), architectures);
  return kSuccess;
}

int nvrtcCreateProgram(void** handle, const char* source, const char* name, int header_count,
                       const char* const* headers, const char* const* header_names) {
  if (!handle || !source) return kInvalidInput;
  auto* program = new Program;
  program->request.source = source;
  program->request.name = name && *name ? name : "default_program";
  for (int i = 0; i < header_count; ++i) {
    program->request.headers.push_back({header_names[i], headers[i]});
  }
  *handle = program;
  return kSuccess;
}

int nvrtcDestroyProgram(void** handle) {
  if (!handle || !*handle) return kInvalidProgram;
  delete as_program(*handle);
  *handle = nullptr;
  return kSuccess;
}

int nvrtcCompileProgram(void* handle, int count, const char* const* options) {
  if (!handle) return kInvalidProgram;
  return compile_program(*as_program(handle), count, options);
}

int nvrtcSetFlowCallback(void* handle, int (*callback)(void*, void*), void* payload) {
  if (!handle) return kInvalidProgram;
  if (!callback) return kInvalidInput;
  as_program(handle)->request.is_cancelled = [=] { return callback(payload, nullptr) == 1; };
  return kSuccess;
}

int nvrtcGetProgramLogSize(void* handle, size_t* bytes) {
  if (!handle) return kInvalidProgram;
  *bytes = as_program(handle)->log.size() + 1;
  return kSuccess;
}

int nvrtcGetProgramLog(void* handle, char* out) {
  return handle ? take_text(as_program(handle)->log, out) : kInvalidProgram;
}

int nvrtcGetPTXSize(void* handle, size_t* bytes) {
  if (!handle || as_program(handle)->ptx.empty()) return kInvalidProgram;
  *bytes = as_program(handle)->ptx.size() + 1;
  return kSuccess;
}

int nvrtcGetPTX(void* handle, char* out) {
  if (!handle || as_program(handle)->ptx.empty()) return kInvalidProgram;
  return take_text(as_program(handle)->ptx, out);
}

int nvrtcGetCUBINSize(void* handle, size_t* bytes) {
  if (!handle || as_program(handle)->ptx.empty()) return kInvalidProgram;
  *bytes = as_program(handle)->cubin.size();
  return kSuccess;
}

int nvrtcGetCUBIN(void* handle, char* out) {
  if (!handle || as_program(handle)->cubin.empty()) return kInvalidProgram;
  const std::string& cubin = as_program(handle)->cubin;
  std::memcpy(out, cubin.data(), cubin.size());
  return kSuccess;
}

int nvrtcAddNameExpression(void* handle, const char* expression) {
  if (!handle) return kInvalidProgram;
  if (as_program(handle)->compiled) return kNoNamesAfterCompilation;
  as_program(handle)->request.expressions.push_back(expression);
  return kSuccess;
}

int nvrtcGetLoweredName(void* handle, const char* expression, const char** name) {
  if (!handle) return kInvalidProgram;
  if (!as_program(handle)->compiled) return kNoLoweredNamesBeforeCompilation;
  const auto& lowered = as_program(handle)->lowered;
  auto found = lowered.find(expression);
  if (found == lowered.end()) return kNameExpressionNotValid;
  *name = found->second.c_str();
  return kSuccess;
}

/// The number of calls of nvrtcCompileProgram.
long opwright_emulation_compilations() { return compilations; }

}  // extern "C"
