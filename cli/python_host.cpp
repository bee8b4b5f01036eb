#include "python_host.h"

#include <dlfcn.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "base/error.h"
#include "opwright/runtime.h"
#include "plugin/registry/source_language.h"

namespace opwright::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kName = "python";

/// Version and paths that an interpreter reports.
struct Installation {
  std::string executable, version, prefix, library;
  std::vector<std::string> library_folders, path;
};

/// Functions of libpython that the program calls. All of them belong to the stable interface.
struct Functions {
  void (*initialize)(int);
  int (*finalize)();
  int (*run)(const char*);
  void* (*save_thread)();
  int (*ensure)();
  void (*release)(int);
};

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

/// The folder of the Python package. In an installed wheel the program's library lies in this
/// folder.
std::optional<fs::path> package_folder() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<void*>(&getInferLibVersion), &info) == 0) return std::nullopt;
  const fs::path folder = fs::weakly_canonical(info.dli_fname).parent_path().parent_path();
  if (fs::exists(folder / "__init__.py")) return folder;
  return std::nullopt;
}

/// "3.11" if the extension was built for only that version; empty if it suits several versions.
std::string extension_version(const fs::path& package) {
  for (const auto& entry : fs::directory_iterator(package)) {
    const std::string name = entry.path().filename();
    constexpr std::string_view kStart = "_core.cpython-3";
    if (name.rfind(kStart, 0) != 0) continue;
    const std::string minor =
        name.substr(kStart.size(), name.find('-', kStart.size()) - kStart.size());
    return "3." + minor;
  }
  return {};
}

/// Interpreters to ask, the likeliest first.
std::vector<std::string> interpreters(const std::optional<fs::path>& package) {
  if (const std::string wanted = environment("OPWRIGHT_PYTHON"); !wanted.empty()) return {wanted};
  std::vector<std::string> list;
  std::error_code ignored;
  const fs::path beside = fs::read_symlink("/proc/self/exe", ignored).parent_path() / "python3";
  if (fs::exists(beside)) list.push_back(beside);
  const std::string version = package ? extension_version(*package) : "";
  if (!version.empty()) list.push_back("python" + version);
  list.emplace_back("python3");
  return list;
}

/// Lines that the interpreter prints for the script; empty when it fails.
std::vector<std::string> lines_of(const std::string& executable, const std::string& script) {
  std::string quoted = "'";
  for (const char c : executable) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  FILE* pipe = popen((quoted + "' -c \"" + script + "\" 2>/dev/null").c_str(), "r");
  if (pipe == nullptr) return {};
  std::string text;
  std::array<char, 4096> buffer;
  for (size_t n = 0; (n = fread(buffer.data(), 1, buffer.size(), pipe)) > 0;)
    text.append(buffer.data(), n);
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return pclose(pipe) == 0 ? lines : std::vector<std::string>();
}

std::optional<Installation> ask(const std::string& executable) {
  const std::vector<std::string> lines = lines_of(
      executable,
      "import sys, sysconfig as s; print(sys.executable, '%d.%d' % sys.version_info[:2], "
      "sys.base_prefix + ':' + sys.base_exec_prefix, s.get_config_var('INSTSONAME') or '', "
      "s.get_config_var('LIBDIR') or '', s.get_config_var('LIBPL') or '', "
      "sys.base_prefix + '/lib', *filter(None, sys.path), sep='\\n')");
  constexpr size_t kFixed = 7;
  if (lines.size() < kFixed) return std::nullopt;
  Installation found{lines[0], lines[1], lines[2], lines[3], {}, {}};
  found.library_folders.assign(lines.begin() + 4, lines.begin() + kFixed);
  found.path.assign(lines.begin() + kFixed, lines.end());
  return found;
}

[[noreturn]] void refuse(const std::string& reason, const std::string& details = "") {
  fail("the engine brings plugins along as Python source, but ", reason,
       ". The environment variable OPWRIGHT_PYTHON names the interpreter to use; "
       "the engine also loads in Python itself, with opwright.load",
       details);
}

Installation find_installation(const std::optional<fs::path>& package) {
  std::string tried;
  for (const std::string& candidate : interpreters(package)) {
    tried += (tried.empty() ? "" : ", ") + candidate;
    std::optional<Installation> found = ask(candidate);
    if (!found) continue;
    const std::string version = package ? extension_version(*package) : "";
    if (version.empty() || version == found->version) return *std::move(found);
    tried += " (Python " + found->version + ", the package is for " + version + ")";
  }
  refuse("no Python interpreter that suits was found; tried: " + tried);
}

/// Opens libpython with global symbols, since extension modules take Python's symbols from there.
void* open_library(const Installation& python) {
  std::string reason = "it says of no shared library";
  // An interpreter that is linked statically may still have a library beside it.
  const std::string names[] = {python.library, "libpython" + python.version + ".so.1.0",
                               "libpython" + python.version + ".so"};
  for (const std::string& name : names) {
    if (name.find(".so") == std::string::npos) continue;
    std::vector<std::string> files;
    for (const std::string& folder : python.library_folders)
      if (fs::exists(fs::path(folder) / name)) files.push_back(fs::path(folder) / name);
    files.push_back(name);
    for (const std::string& file : files) {
      if (void* handle = dlopen(file.c_str(), RTLD_NOW | RTLD_GLOBAL)) return handle;
      reason = dlerror();
    }
  }
  refuse("the shared library of Python " + python.version + " (" + python.executable +
         ") is not found, as where Python was built without one (--enable-shared) or its package "
         "is not installed: " +
         reason);
}

Functions resolve(void* library) {
  Functions f{};
  const auto take = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
    if (function == nullptr) refuse(str("its library lacks the function ", name));
  };
  take(f.initialize, "Py_InitializeEx");
  take(f.finalize, "Py_FinalizeEx");
  take(f.run, "PyRun_SimpleString");
  take(f.save_thread, "PyEval_SaveThread");
  take(f.ensure, "PyGILState_Ensure");
  take(f.release, "PyGILState_Release");
  return f;
}

/// A string literal of Python.
std::string quote(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) {
    char escaped[8];
    std::snprintf(escaped, sizeof(escaped), "\\x%02x", static_cast<unsigned char>(c));
    quoted += escaped;
  }
  return "b" + quoted + "'.decode('utf-8', 'surrogateescape')";
}

/// The program's Python interpreter, loaded when it is first needed.
class Python final : public SourceLanguage {
 public:
  std::vector<CodeObject> collect(std::span<const PluginRequirement>) override {
    return {};  // the program runs no Python while it builds
  }

  Plugins load(std::span<const CodeObject> sources,
               std::span<const PluginRequirement> plugins) override {
    start();
    return find_source_language(kName)->load(sources, plugins);
  }

  void finish() {
    if (!functions_) return;
    functions_->ensure();
    functions_->finalize();
    functions_.reset();
  }

 private:
  void start() {
    const std::optional<fs::path> package = package_folder();
    const Installation python = find_installation(package);
    functions_ = resolve(open_library(python));
    const std::string home = environment("PYTHONHOME");
    setenv("PYTHONHOME", python.prefix.c_str(), 1);
    functions_->initialize(0);  // leaves the signals to the program
    if (home.empty())
      unsetenv("PYTHONHOME");
    else
      setenv("PYTHONHOME", home.c_str(), 1);
    import_package(python, package);
    functions_->save_thread();
    if (find_source_language(kName) == this)
      refuse("the package opwright of " + python.executable +
             " belongs to another installation than this program");
  }

  void import_package(const Installation& python, const std::optional<fs::path>& package) {
    std::string path;
    if (package) path += quote(package->parent_path()) + ", ";
    for (const std::string& entry : python.path) path += quote(entry) + ", ";
    // The traceback comes back through a file descriptor, which does not depend on the layout of
    // Python's objects.
    int ends[2];
    require(pipe(ends) == 0, "no pipe for Python's messages");
    const std::string script =
        str("import os, sys\n"
            "sys.path[:0] = [p for p in dict.fromkeys([",
            path,
            "]) if p not in sys.path]\n"
            "try:\n"
            "    import opwright\n"
            "except BaseException:\n"
            "    import traceback\n"
            "    os.write(",
            ends[1], ", traceback.format_exc().encode()[-60000:])\n");
    const int failed = functions_->run(script.c_str());
    close(ends[1]);
    std::string message;
    std::array<char, 4096> buffer;
    for (ssize_t n = 0; (n = read(ends[0], buffer.data(), buffer.size())) > 0;)
      message.append(buffer.data(), static_cast<size_t>(n));
    close(ends[0]);
    if (message.ends_with('\n')) message.pop_back();
    if (failed != 0 || !message.empty())
      refuse("the package opwright cannot be imported in " + python.executable + " (Python " +
                 python.version + ")",
             "\n" + message);
  }

  std::optional<Functions> functions_;
};

Python& python() {
  static Python instance;
  return instance;
}

}  // namespace

void offer_python() { set_source_language(kName, &python()); }

void finish_python() { python().finish(); }

void become_python(const std::vector<std::string>& arguments) {
  std::string tried;
  for (std::string& interpreter : interpreters(package_folder())) {
    tried += (tried.empty() ? "" : ", ") + interpreter;
    if (lines_of(interpreter, "import importlib.util as u; print(u.find_spec('opwright').name)") !=
        std::vector<std::string>{"opwright"})
      continue;
    // As `-m opwright`, but Ctrl-C while the package is imported ends it without a traceback.
    std::vector<std::string> words = {
        interpreter, "-c",
        "import signal; signal.signal(signal.SIGINT, signal.SIG_DFL); import runpy; "
        "runpy.run_module('opwright', run_name='__main__', alter_sys=True)"};
    words.insert(words.end(), arguments.begin(), arguments.end());
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    execvp(argv[0], argv.data());
  }
  fail(
      "files of operators in Python, `serve`, `shard` and `--ranks` are for the Python package, "
      "which no interpreter that was tried has (",
      tried,
      "): pip install opwright, or 'opwright[serve]', or name the interpreter that has it in the "
      "environment "
      "variable OPWRIGHT_PYTHON");
}

}  // namespace opwright::cli
