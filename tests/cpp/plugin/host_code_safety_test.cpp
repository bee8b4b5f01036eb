// What may be loaded from files that somebody made on purpose: plans are forged with the writer.

#include <elf.h>
#include <fcntl.h>
#include <sys/mman.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <set>
#include <sstream>

#include "add_profile.h"
#include "plan/trusted.h"
#include "plugin/compile_for_test.h"
#include "plugin/compiled_operator.h"
#include "plugin/engine_for_test.h"
#include "plugin/kernel/compiled_kernel.h"
#include "plugin/kernel/host_code.h"
#include "plugin/plugin_test.h"
#include "runtime/inspect.h"

namespace opwright {
namespace {

using DT = DataType;
constexpr PortType kFp32{DT::kFLOAT, TensorFormat::kLINEAR};

LoadOptions allowing() {
  LoadOptions options;
  options.allow_host_code = true;
  return options;
}

CodeObject with_bytes(CodeObject object, const std::vector<char>& bytes) {
  object.bytes = Blob::copy(bytes.data(), bytes.size());
  return object;
}

std::vector<char> bytes_of(const CodeObject& object) {
  return {object.bytes.as<char>(), object.bytes.as<char>() + object.bytes.size()};
}

/// y = x + `added`, whose constructor creates the file `marker`.
CodeObject adding(int added, const std::string& marker = "/dev/null") {
  CodeObject object = compile_for_test(
      "#include <cstdio>\n"
      "__attribute__((constructor)) static void init() { std::fclose(std::fopen(\"" +
      marker +
      "\", \"w\")); }\n"
      "extern \"C\" void k(void** args, int64_t x, int64_t, int64_t) {\n"
      "  (*(float**)args[1])[x] = (*(const float**)args[0])[x] + " +
      std::to_string(added) + "; }\n");
  object.name = "add " + std::to_string(added);
  return object;
}

/// A cell for each element of x, [n, 3].
OperatorPtr make_adding(const CodeObject& object) {
  KernelCode code;
  code.name = "k";
  code.object = object;
  code.grid[0] = Expr::symbol(0) * Expr::symbol(1);
  return std::make_shared<CompiledOperator>(code, 2);
}

/// A chain of compiled kernels from x to y.
Plan build_chain(const std::vector<CodeObject>& objects) {
  Network network;
  Tensor* tensor = network.add_input("x", DT::kFLOAT, {-1, 3});
  for (size_t i = 0; i < objects.size(); ++i) {
    Tensor* const inputs[] = {tensor};
    tensor =
        network.add_layer(make_adding(objects[i]), inputs, "layer " + std::to_string(i))->output(0);
  }
  tensor->set_name("y");
  network.mark_output(*tensor);
  BuilderConfig config{DeviceId{"cpu"}};
  config.timing = false;
  OptimizationProfile profile;
  profile.set_shape("x", {1, 3}, {4, 3}, {8, 3});
  add_profile(config, profile);
  return deserialize(to_file(compile(network, config)));
}

std::vector<float> run_chain(const Plan& plan, const LoadOptions& options = {}) {
  return run(Engine::load(deserialize(to_file(plan)), options), {1, 3}, {1, 2, 3});
}

/// As another process would have built it: its name is not that of the plan that is trusted.
Plan foreign(Plan plan) {
  plan.name = "foreign";
  return plan;
}

class HostCodeSafety : public testing::Test {
 protected:
  void SetUp() override { unlink(marker_.c_str()); }
  void TearDown() override { unlink(marker_.c_str()); }
  bool ran() const { return access(marker_.c_str(), F_OK) == 0; }

  const std::string marker_ = testing::TempDir() + "/opwright_safety_" + std::to_string(getpid());
};

TEST_F(HostCodeSafety, PlansOfThisProcessNeedNoPermissionAndEditedOnesDo) {
  const Plan plan = build_chain({adding(1), adding(10)});
  ASSERT_TRUE(is_trusted(plan));
  EXPECT_EQ(run_chain(plan), (std::vector<float>{12, 13, 14}));

  using Edit = std::function<void(Plan&)>;
  const auto launch = [](Plan& p) -> KernelLaunch& {
    return std::get<KernelLaunch>(p.schedules[0].steps[0].attributes[0].value);
  };
  const std::vector<std::pair<const char*, Edit>> edits = {
      {"the code sections are exchanged",
       [](Plan& p) { std::swap(p.code[0].bytes, p.code[1].bytes); }},
      {"a step uses the other code", [](Plan& p) { p.schedules[0].steps[0].code = {1}; }},
      {"a function of the C library is called", [&](Plan& p) { launch(p).symbol = "system"; }},
      {"the grid is another expression", [&](Plan& p) { launch(p).program[0].value += 1; }},
      {"the target is another", [](Plan& p) { p.code[0].target += " sse2"; }},
      {"the name is another", [](Plan& p) { p.code[0].name = "harmless"; }},
      {"the code is listed as a plugin library", [](Plan& p) { p.plugin_libraries = {0}; }},
      {"the code is listed as source", [](Plan& p) { p.plugin_sources = {0}; }},
      {"memory is elsewhere", [](Plan& p) { p.schedules[0].arena_size += 64; }},
      {"one byte of the code is another",
       [](Plan& p) {
         std::vector<char> bytes = bytes_of(p.code[0]);
         bytes.back() ^= 1;
         p.code[0] = with_bytes(p.code[0], bytes);
       }},
  };
  for (const auto& [what, edit] : edits) {
    Plan forged = plan;
    edit(forged);
    EXPECT_CONTAINS(thrown_error([&] { run_chain(forged); }),
                    "contains code that would run on this computer")
        << what;
  }
  EXPECT_EQ(run_chain(plan), (std::vector<float>{12, 13, 14}));
}

TEST_F(HostCodeSafety, NoConstructorRunsBeforeThePermission) {
  Plan plan = foreign(build_chain({adding(1)}));
  plan.code[0] = adding(1, marker_);
  EXPECT_CONTAINS(thrown_error([&] { run_chain(plan); }), "permit it");
  EXPECT_FALSE(ran());
  inspect_text(deserialize(to_file(plan)));
  inspect_json(deserialize(to_file(plan)));
  EXPECT_FALSE(ran());

  // Claims that it is code for a GPU: it is refused, permitted or not.
  Plan claims = plan;
  claims.code[0].host = false;
  LoadOptions device;
  device.allow_device_code = true;
  for (const char* target : {kHostTarget, "sm_90"}) {
    claims.code[0].target = target;
    EXPECT_CONTAINS(thrown_error([&] { run_chain(claims); }), "contains code for a GPU");
    EXPECT_CONTAINS(thrown_error([&] { run_chain(claims, device); }), "may not run on the host");
    EXPECT_CONTAINS(thrown_error([&] { run_chain(claims, allowing()); }),
                    "may not run on the host");
    EXPECT_FALSE(ran());
  }
  EXPECT_CONTAINS(thrown_error([&] { run_chain(plan, device); }), "permit it");
  EXPECT_FALSE(ran());
  claims.plugin_libraries = {0};
  EXPECT_CONTAINS(thrown_error([&] { to_file(claims); }), "not marked as code for the host");

  Plan library = plan;
  library.plugin_libraries = {0};
  EXPECT_CONTAINS(thrown_error([&] { run_chain(library); }), "permit it");
  EXPECT_FALSE(ran());

  // With permission it would have been seen.
  EXPECT_EQ(run_chain(plan, allowing()), (std::vector<float>{2, 3, 4}));
  EXPECT_TRUE(ran());
}

TEST_F(HostCodeSafety, ForeignTargetsAreNamedAndNothingIsLoaded) {
  Plan plan = foreign(build_chain({adding(1)}));
  plan.code[0] = adding(1, marker_);
  const auto error_with = [&](const std::string& target) {
    Plan forged = plan;
    forged.code[0].target = target;
    return thrown_error([&] { run_chain(forged, allowing()); });
  };
  const std::string other = std::string(kHostTarget) == "x86-64" ? "aarch64" : "x86-64";
  EXPECT_CONTAINS(error_with(other), "is for '" + other + "', but this host is " + kHostTarget);
  EXPECT_CONTAINS(error_with(std::string(kHostTarget) + " fancyfeature"),
                  "but this processor lacks fancyfeature; build the engine on this machine or for "
                  "a lesser target");
  EXPECT_CONTAINS(error_with(""), "but this host is");
  EXPECT_CONTAINS(error_with("sm_90"), "layer 'layer 0': compiled kernel 'add 1' is for 'sm_90'");
  EXPECT_FALSE(ran());
}

TEST_F(HostCodeSafety, CodeThatIsNoSharedObjectIsRefused) {
  const Plan plan = foreign(build_chain({adding(1)}));
  const std::vector<char> good = bytes_of(plan.code[0]);
  const auto error_with = [&](const std::vector<char>& bytes) {
    Plan forged = plan;
    forged.code[0] = with_bytes(forged.code[0], bytes);
    return thrown_error([&] { run_chain(forged, allowing()); });
  };
  const std::string ptx = ".version 8.0\n.target sm_90\n" + std::string(100, '\n');
  EXPECT_CONTAINS(error_with({}), "layer 'layer 0': compiled kernel 'add 1' (0 bytes)");
  EXPECT_CONTAINS(error_with({ptx.begin(), ptx.end()}), "does not begin with \\x7fELF");
  EXPECT_CONTAINS(error_with({good.begin(), good.begin() + 1000}), "truncated");
  EXPECT_EQ(run_chain(plan, allowing()), (std::vector<float>{2, 3, 4}));
}

TEST_F(HostCodeSafety, FilesThatAreCutAnywhereAreRefused) {
  const Blob file = to_file(build_chain({adding(1), adding(2)}));
  std::set<size_t> sizes{0, 1, file.size() - 1};
  for (size_t size = 4096; size < file.size(); size += 4096)
    sizes.insert({size - 1, size, size + 1});
  for (const size_t size : sizes)
    EXPECT_CONTAINS(thrown_error([&] { deserialize(Blob::copy(file.data(), size)); }),
                    "cannot read engine file: ")
        << size;
}

TEST_F(HostCodeSafety, EqualCodeIsStoredAndLoadedOnce) {
  const CodeObject object = adding(3);
  const Plan once = build_chain({object}), thrice = build_chain({object, object, object});
  EXPECT_EQ(thrice.code.size(), 1u);
  for (const PlanStep& step : thrice.schedules[0].steps)
    EXPECT_EQ(step.code, std::vector<int32_t>{0});
  EXPECT_LT(to_file(thrice).size(), to_file(once).size() + object.bytes.size());
  EXPECT_EQ(run_chain(thrice), (std::vector<float>{10, 11, 12}));
  const auto count = [] {
    std::ifstream maps("/proc/self/maps");
    std::set<std::string> inodes;
    for (std::string line; std::getline(maps, line);)
      if (line.find("memfd:opwright-kernel") != std::string::npos) {
        std::istringstream words(line);
        std::string skip, inode;
        words >> skip >> skip >> skip >> skip >> inode;
        inodes.insert(inode);
      }
    return inodes.size();
  };
  const size_t before = count();
  Context context(Engine::load(thrice, {}));
  run(context, {1, 3}, {1, 2, 3});
  EXPECT_EQ(count(), before + 1);
}

TEST_F(HostCodeSafety, MemoryIsSealedAndNeverWritableAndExecutable) {
  const auto code = HostCode::load(adding(4));
  std::ifstream maps("/proc/self/maps");
  size_t found = 0;
  for (std::string line; std::getline(maps, line);) {
    if (line.find("memfd:opwright-kernel") == std::string::npos) continue;
    ++found;
    EXPECT_EQ(line.find("rwx"), std::string::npos) << line;
    EXPECT_EQ(line.find("-wx"), std::string::npos) << line;
    EXPECT_EQ(line.find("rw-s"), std::string::npos) << line;
  }
  EXPECT_GT(found, 1u);
  size_t sealed = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const auto target = std::filesystem::read_symlink(entry, gone);
    if (target.string().find("memfd:opwright-kernel") == std::string::npos) continue;
    const int descriptor = std::stoi(entry.path().filename());
    EXPECT_EQ(fcntl(descriptor, F_GET_SEALS),
              F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL);
    EXPECT_TRUE(fcntl(descriptor, F_GETFD) & FD_CLOEXEC);
    EXPECT_LT(pwrite(descriptor, "x", 1, 0), 0);
    EXPECT_LT(ftruncate(descriptor, 0), 0);
    EXPECT_EQ(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0), MAP_FAILED);
    ++sealed;
  }
  EXPECT_GT(sealed, 0u);
}

/// The code with the first program header of that type changed.
CodeObject with_segment(const CodeObject& object, uint32_t type,
                        const std::function<void(Elf64_Phdr&)>& change) {
  std::vector<char> bytes = bytes_of(object);
  Elf64_Ehdr header;
  std::memcpy(&header, bytes.data(), sizeof(header));
  for (size_t i = 0; i < header.e_phnum; ++i) {
    char* const at = bytes.data() + header.e_phoff + i * sizeof(Elf64_Phdr);
    Elf64_Phdr segment;
    std::memcpy(&segment, at, sizeof(segment));
    if (segment.p_type != type) continue;
    change(segment);
    std::memcpy(at, &segment, sizeof(segment));
    return with_bytes(object, bytes);
  }
  ADD_FAILURE() << "there is no segment of type " << type;
  return object;
}

TEST_F(HostCodeSafety, CodeThatWantsUnsafeMemoryIsRefused) {
  const CodeObject good = adding(5, marker_);
  const auto error_with = [](const CodeObject& object) {
    const std::string checked = thrown_error([&] { check_host_code(object); });
    EXPECT_EQ(thrown_error([&] { HostCode::load(object); }), checked);
    return checked;
  };
  EXPECT_CONTAINS(
      error_with(with_segment(good, PT_LOAD, [](auto& s) { s.p_flags = PF_R | PF_W | PF_X; })),
      "compiled kernel 'add 5' (");
  EXPECT_CONTAINS(error_with(with_segment(good, PT_LOAD, [](auto& s) { s.p_flags = PF_W | PF_X; })),
                  "writable and executable at once");
  EXPECT_CONTAINS(error_with(with_segment(good, PT_GNU_STACK, [](auto& s) { s.p_flags |= PF_X; })),
                  "wants an executable stack; link it with -Wl,-z,noexecstack");
  EXPECT_CONTAINS(error_with(with_segment(good, PT_GNU_STACK, [](auto& s) { s.p_type = PT_NULL; })),
                  "does not say that its stack is not executable");
  EXPECT_CONTAINS(
      error_with(with_segment(good, PT_DYNAMIC, [](auto& s) { s.p_offset = uint64_t{1} << 62; })),
      "truncated");
  const Elf64_Dyn announcements[] = {{DT_TEXTREL, {0}}, {DT_FLAGS, {DF_TEXTREL}}};
  for (const Elf64_Dyn& entry : announcements) {
    std::vector<char> bytes = bytes_of(good);
    with_segment(good, PT_DYNAMIC, [&](const Elf64_Phdr& s) {
      std::memcpy(bytes.data() + s.p_offset, &entry, sizeof(entry));
    });
    EXPECT_CONTAINS(error_with(with_bytes(good, bytes)), "relocations in its code");
  }
  EXPECT_FALSE(ran());
  HostCode::load(good);
  EXPECT_TRUE(ran());
}

TEST(LaunchLimits, WrongLaunchesAreOneErrorAndTheKernelStaysUsable) {
  const CodeObject object = adding(1);
  const Candidate candidate{{kFp32}, {kFp32}, 0, ""};
  const std::vector<PortDesc> ports = {port(DT::kFLOAT, {2, 3})};
  // n is the first extent, 2; the second one, m, is 3 or 0.
  const Expr n = Expr::symbol(0), m = Expr::symbol(1);
  const Expr huge = int64_t{1} << 61, most = std::numeric_limits<int64_t>::max();
  struct Case {
    const char* message;
    std::function<void(KernelCode&)> change;
  };
  const std::vector<Case> cases = {
      {"grid_x is 0 (inputs[0].shape[0] - 2), so that nothing would write output 0",
       [&](KernelCode& c) { c.grid[0] = n - 2; }},
      {"grid_z is -1 (inputs[0].shape[0] - 3); it must be at least 1",
       [&](KernelCode& c) { c.grid[2] = n - 3; }},
      {"block_y is 0", [&](KernelCode& c) { c.block[1] = n - 2; }},
      {"block_x is -2", [&](KernelCode& c) { c.block[0] = n - 4; }},
      {"shared_mem is -1", [&](KernelCode& c) { c.shared_memory = n - 3; }},
      {"grid_x (", [&](KernelCode& c) { c.grid[0] = n * most; }},
      {"2 * 9223372036854775807 does not fit 64 bits",
       [&](KernelCode& c) { c.grid[0] = n * most; }},
      {"2 + 9223372036854775807 does not fit 64 bits",
       [&](KernelCode& c) { c.grid[1] = n + most; }},
      {"extra argument 0 (",
       [&](KernelCode& c) {
         c.arguments = {{ArgumentType::kINT64, n * most, 0}};
       }},
      {"the grid has 4611686018427387904 x 1 x 1 cells (inputs[0].shape[0] * 2305843009213693952, "
       "1, 1); at most 2147483647 run",
       [&](KernelCode& c) { c.grid[0] = n * huge; }},
      {"at most 2147483647 run",
       [&](KernelCode& c) { c.grid[0] = c.grid[1] = c.grid[2] = n * huge; }},
      {"the grid has 65536 x 32768 x 1 cells",
       [&](KernelCode& c) { c.grid[0] = n * 32768, c.grid[1] = n * 16384; }},
      {"division of 1 by zero", [&](KernelCode& c) { c.grid[0] = floor_div(1, n - 2); }},
      {"division of -7 by zero",
       [&](KernelCode& c) {
         c.arguments = {{ArgumentType::kINT32, ceil_div(7, n - 2), 0}};
       }},
      {"does not fit 16 bits",
       [&](KernelCode& c) {
         c.arguments = {{ArgumentType::kINT16, n * 20000, 0}};
       }},
      {"does not fit 32 bits",
       [&](KernelCode& c) {
         c.arguments = {{ArgumentType::kINT32, n * huge, 0}};
       }},
      {"exports no symbol 'q'", [&](KernelCode& c) { c.name = "q"; }},
  };
  const auto prepare = [&](KernelCode code, const Shape& shape) {
    const PlannedOperatorPtr op = make_compiled_kernel(std::move(code));
    auto kernel = op->make_kernel(make_args(candidate, ports, ports));
    kernel->on_shape_change({&shape, 1}, {&shape, 1});
    return kernel;
  };
  KernelCode good;
  good.name = "k";
  good.object = object;
  good.grid[0] = n * m;
  for (const Case& each : cases) {
    KernelCode code = good;
    each.change(code);
    EXPECT_CONTAINS(thrown_error([&] { prepare(code, {2, 3}); }), each.message);
    // The same kernel works again where its expressions do.
    const PlannedOperatorPtr op = make_compiled_kernel(good);
    const auto kernel = op->make_kernel(make_args(candidate, ports, ports));
    const Shape shape{2, 3};
    kernel->on_shape_change({&shape, 1}, {&shape, 1});
    const std::vector<float> x = {1, 2, 3, 4, 5, 6};
    std::vector<float> y(6);
    void const* inputs[] = {x.data()};
    void* outputs[] = {y.data()};
    kernel->enqueue(inputs, outputs, nullptr, nullptr);
    EXPECT_EQ(y, (std::vector<float>{2, 3, 4, 5, 6, 7}));
  }
  // An empty grid is right where there is nothing to write.
  const Shape empty{2, 0};
  const auto kernel = prepare(good, empty);
  void const* inputs[] = {nullptr};
  void* outputs[] = {nullptr};
  kernel->enqueue(inputs, outputs, nullptr, nullptr);
  KernelCode largest = good;
  largest.grid[0] = n * 1073741824 - 1;
  prepare(largest, {2, 3});
}

TEST(LaunchLimits, AKernelThatFailedForAShapeWorksForTheNext) {
  const Candidate candidate{{kFp32}, {kFp32}, 0, ""};
  const std::vector<PortDesc> ports = {port(DT::kFLOAT, {2, 3})};
  KernelCode code;
  code.name = "k";
  code.object = adding(1);
  code.grid[0] = Expr::symbol(0) * Expr::symbol(1) * (Expr::symbol(0) - 1);
  const PlannedOperatorPtr op = make_compiled_kernel(code);
  const auto kernel = op->make_kernel(make_args(candidate, ports, ports));
  const Shape one{1, 3}, two{2, 3};
  EXPECT_CONTAINS(thrown_error([&] {
                    kernel->on_shape_change({&one, 1}, {&one, 1});
                  }),
                  "grid_x is 0");
  kernel->on_shape_change({&two, 1}, {&two, 1});
  const std::vector<float> x = {1, 2, 3, 4, 5, 6};
  std::vector<float> y(6);
  void const* inputs[] = {x.data()};
  void* outputs[] = {y.data()};
  kernel->enqueue(inputs, outputs, nullptr, nullptr);
  EXPECT_EQ(y, (std::vector<float>{2, 3, 4, 5, 6, 7}));
}

}  // namespace
}  // namespace opwright
