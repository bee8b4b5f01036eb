#include "nvrtc/compile.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "nvrtc/translate.h"

namespace emulation {
namespace {

namespace fs = std::filesystem;

constexpr char kPrelude[] =
#include "nvrtc/prelude.inc"
    ;
constexpr char kTable[] =
#include "nvrtc/table.inc"
    ;
/// The emulated CUDA headers, under the names by which sources include them.
struct OwnHeader {
  const char *name, *content;
};
constexpr OwnHeader kOwnHeaders[] = {
    {
        "opwright_short_floats.h",
#include "nvrtc/short_floats.inc"
    },
    {
        "cuda_fp16.h",
#include "nvrtc/fp16.inc"
    },
    {
        "cuda_bf16.h",
#include "nvrtc/bf16.inc"
    },
};
constexpr const char* kCompiler[] = {
    "g++", "-std=gnu++17", "-w", "-O1", "-fPIC", "-fno-semantic-interposition",
    // Otherwise all libraries share the first one's object of a name, such as a __shared__ array
    // of a template, and are never unloaded.
    "-fno-gnu-unique", "-fno-exceptions", "-fno-rtti", "-fno-threadsafe-statics",
    "-fno-strict-aliasing", "-fwrapv", "-ffp-contract=off", "-fmax-errors=20",
    // Shared memory becomes one range of memory, which the driver fills.
    "-D__shared__=static thread_local",
    // An access that is not aligned for its type raises SIGILL.
    "-fsanitize=alignment", "-fsanitize-undefined-trap-on-error"};
// g++ would take three times as long to link.
constexpr const char* kLinker[] = {"ld", "-shared", "-Bsymbolic", "--hash-style=gnu"};
constexpr char kSourceBegins[] = "struct opwright_source_begins;\n";

std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream content;
  content << file.rdbuf();
  return content.str();
}

void write_file(const fs::path& path, const std::string& content) {
  fs::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << content;
}

uint64_t hash(const std::string& text, uint64_t value) {
  for (unsigned char c : text) value = (value ^ c) * 0x100000001b3u;
  return value;
}

/// The name of a cached file: a hash of the input that it is made from.
std::string name_of(const std::string& key) {
  char name[40];
  std::snprintf(name, sizeof(name), "%016lx%016lx",
                static_cast<unsigned long>(hash(key, 0xcbf29ce484222325u)),
                static_cast<unsigned long>(hash(key, 0x9e3779b97f4a7c15u)));
  return name;
}

fs::path kept_folder() {
  return fs::temp_directory_path() / ("opwright-nvrtc-" + std::to_string(getuid()));
}

/// Stores a file in one step, since another thread or process may store or read the same file at
/// this moment. If that is impossible, nothing is stored.
bool keep(const fs::path& made, const fs::path& kept) {
  std::error_code error;
  fs::create_directories(kept.parent_path(), error);
  fs::rename(made, kept, error);
  return !error;
}

/// Sleeps for a moment. Returns whether the request was cancelled.
bool is_over(const Request& request) {
  constexpr int kMicroseconds = 2000;
  usleep(kMicroseconds);
  return request.is_cancelled && request.is_cancelled();
}

/// Whether the source contains the text in the environment variable.
bool is_chosen(const Request& request, const char* variable) {
  const char* const text = std::getenv(variable);
  return text != nullptr && *text != 0 && request.source.find(text) != std::string::npos;
}

/// Runs the command and writes its messages to the file, or what it prints, of descriptor 1.
bool run(const Request& request, const std::vector<std::string>& command, const fs::path& log,
         int descriptor = 2) {
  std::vector<char*> arguments, variables;
  for (const std::string& argument : command) {
    arguments.push_back(const_cast<char*>(argument.c_str()));
  }
  arguments.push_back(nullptr);
  // A sanitizer that is loaded into this process must not be loaded into the compiler.
  for (char** variable = environ; *variable; ++variable) {
    if (std::strncmp(*variable, "LD_PRELOAD=", 11)) variables.push_back(*variable);
  }
  variables.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, descriptor, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC,
                                   0600);
  pid_t child;
  int failed =
      posix_spawnp(&child, arguments[0], &actions, nullptr, arguments.data(), variables.data());
  posix_spawn_file_actions_destroy(&actions);
  if (failed) {
    write_file(log, "cannot start " + command[0] + ": " + std::strerror(failed) +
                        " (apt-get install g++)\n");
    return false;
  }
  int status = 0;
  while (waitpid(child, &status, request.is_cancelled ? WNOHANG : 0) <= 0) {
    if (request.is_cancelled && is_over(request)) kill(child, SIGKILL);
  }
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/// A folder that disappears with this object.
class WorkFolder {
 public:
  WorkFolder() {
    std::string pattern = fs::temp_directory_path() / "opwright-nvrtc-XXXXXX";
    if (mkdtemp(pattern.data())) path_ = pattern;
  }
  ~WorkFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  WorkFolder(const WorkFolder&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

/// Whether the source includes a file that is neither ours nor in the request.
bool includes_files(const Request& request) {
  std::istringstream lines(request.source);
  for (std::string line; std::getline(lines, line);) {
    if (line.find("#include") == std::string::npos) continue;
    bool known = false;
    for (const OwnHeader& own : kOwnHeaders) known |= line.find(own.name) != std::string::npos;
    for (const Header& header : request.headers)
      known |= line.find('"' + header.name + '"') != std::string::npos;
    if (!known) return true;
  }
  return false;
}

/// The cached file of this request; empty if its headers lie outside of the request.
fs::path kept_file(const Request& request) {
  if (includes_files(request)) return {};
  std::string key = std::string(kPrelude) + kTable + request.source + '\0' + request.name;
  for (const OwnHeader& own : kOwnHeaders) key += own.content;
  for (const char* option : kCompiler) key += std::string(1, '\0') + option;
  for (const char* option : kLinker) key += std::string(1, '\0') + option;
  for (const std::string& option : request.options) key += '\0' + option;
  for (const Header& header : request.headers) key += '\0' + header.name + '\0' + header.content;
  for (const std::string& expression : request.expressions) key += '\0' + expression;
  key += std::to_string(request.architecture);
  return kept_folder() / (name_of(key) + ".so");
}

std::vector<std::string> language(const Request& request) {
  std::vector<std::string> options = {"-std=c++17"};
  for (const std::string& option : request.options) options.push_back(option);
  return options;
}

std::string entry(const KernelName& kernel) {
  const std::string& name = kernel.name;
  return "opwright_kernel<opwright_unpointer<decltype(&" + name + ")>::type>::entry<&" + name +
         ">(\"" + name + "\", " + kernel.max_threads + ", " + kernel.cluster + "),\n";
}

/// The program, from the preprocessed source. The prelude is another file.
std::string program(const Request& request, const std::string& preprocessed) {
  Translation translation = translate(preprocessed);
  std::string text = translation.source + "static const opwright_entry opwright_entries[] = {\n";
  for (const KernelName& kernel : translation.kernels) {
    text += entry(kernel);
  }
  for (const std::string& expression : request.expressions) {
    bool known = false;
    for (const KernelName& kernel : translation.kernels) known |= kernel.name == expression;
    if (!known) text += entry({.name = expression});
  }
  return text +
         "{}};\nextern \"C\" const opwright_table opwright_kernel_table = "
         "{opwright_entries, sizeof(opwright_entries) / sizeof(opwright_entries[0]) - 1, "
         "&opwright_block, " +
         (translation.collective ? "1" : "0") + "};\n";
}

/// Writes the source with its headers to the folder that the environment names, for inspection and
/// for other compilers.
void keep_source(const Request& request) {
  const char* const folder = std::getenv("OPWRIGHT_EMULATED_SOURCES");
  if (folder == nullptr) return;
  char name[40];
  std::snprintf(name, sizeof(name), "%016lx.cu",
                static_cast<unsigned long>(hash(request.source, 0xcbf29ce484222325u)));
  write_file(fs::path(folder) / name, request.source);
  for (const Header& header : request.headers) {
    const fs::path file = fs::path(folder) / header.name;
    if (read_file(file) != header.content) write_file(file, header.content);
  }
}

std::vector<std::string> compiler(const char* language) {
  std::vector<std::string> command(std::begin(kCompiler), std::end(kCompiler));
  command.insert(command.end(), {"-x", language});
  return command;
}

/// The prelude after preprocessing as a header. It is precompiled once, which saves a fifth of the
/// time of most compilations.
fs::path prelude_header(const Request& request, const std::string& preprocessed,
                        const fs::path& folder) {
  std::istringstream lines(preprocessed);
  std::string text;  // without the lines that name the folder
  for (std::string line; std::getline(lines, line);)
    if (!line.starts_with("# ")) text += line + '\n';
  text += kTable;
  std::string key = text;
  for (const char* option : kCompiler) key += std::string(1, '\0') + option;
  const fs::path kept = kept_folder() / (name_of(key) + ".h");
  const auto precompiled = [](const fs::path& header) { return header.string() + ".gch"; };
  if (fs::exists(precompiled(kept))) return kept;
  const fs::path header = folder / "prelude.h", copy = folder / "copy.h";
  write_file(header, text);
  write_file(copy, text);
  std::vector<std::string> command = compiler("c++-header");
  command.insert(command.end(), {header, "-o", precompiled(header)});
  const bool is_kept = run(request, command, folder / "prelude.log") && keep(copy, kept) &&
                       keep(precompiled(header), precompiled(kept));
  return is_kept ? kept : header;
}

/// The file of the compiler's own functions, such as those that count bits.
const std::string& support_library() {
  static const std::string file = [] {
    const WorkFolder folder;
    const fs::path printed = folder.path() / "file";
    run({}, {"g++", "-print-libgcc-file-name"}, printed, 1);
    std::string name = read_file(printed);
    return name.substr(0, name.find('\n'));
  }();
  return file;
}

}  // namespace

CompiledLibrary compile(const Request& request) {
  CompiledLibrary result;
  keep_source(request);
  if (is_chosen(request, "OPWRIGHT_EMULATED_REFUSED")) {
    result.log = request.name + "(1): error: refused by the environment\n";
    return result;
  }
  constexpr int kWaits = 30000;
  if (is_chosen(request, "OPWRIGHT_EMULATED_SLOW"))
    for (int i = 0; i < kWaits && !result.cancelled; ++i) result.cancelled = is_over(request);
  if (result.cancelled) return result;
  fs::path kept = kept_file(request);
  if (!kept.empty() && fs::exists(kept)) {
    result.bytes = read_file(kept);
    result.succeeded = true;
    return result;
  }
  WorkFolder folder;
  fs::path source = folder.path() / "source.cu", whole = folder.path() / "whole.ii",
           translated = folder.path() / "translated.cpp", object = folder.path() / "object.o",
           library = folder.path() / "library.so", log = folder.path() / "log";
  fs::path include = folder.path() / "include";
  for (const OwnHeader& own : kOwnHeaders) write_file(include / own.name, own.content);
  for (const Header& header : request.headers) write_file(include / header.name, header.content);
  std::string architecture = std::to_string(request.architecture);
  write_file(source, "#define __CUDA_ARCH__ " + architecture + "0\n" + kPrelude + kSourceBegins +
                         "#line 1 \"" + request.name + "\"\n" + request.source + "\n");
  std::vector<std::string> preprocess = {"g++", "-x",        "c++", "-E",   "-undef",
                                         "-w",  "-nostdinc", "-I",  include};
  for (const std::string& option : language(request)) preprocess.push_back(option);
  preprocess.insert(preprocess.end(), {source, "-o", whole});
  bool done = run(request, preprocess, log);
  if (done) {
    const std::string preprocessed = read_file(whole);
    const size_t begin = preprocessed.find(kSourceBegins);
    write_file(translated, program(request, preprocessed.substr(begin)));
    const fs::path prelude = prelude_header(request, preprocessed.substr(0, begin), folder.path());
    std::vector<std::string> command = compiler("c++");
    command.insert(command.end(), {"-include", prelude, translated, "-c", "-o", object});
    std::vector<std::string> link(std::begin(kLinker), std::end(kLinker));
    link.insert(link.end(), {object, "-o", library, "-lm", "-lc", support_library()});
    done = run(request, command, log) && run(request, link, log);
  }
  result.log = read_file(log);
  result.succeeded = done;
  result.cancelled = !done && request.is_cancelled && request.is_cancelled();
  if (!done) return result;
  result.bytes = read_file(library);
  if (!kept.empty()) keep(library, kept);
  return result;
}

}  // namespace emulation
