// Plugin fields and launches as engine files store them: what goes in comes out.

#include <gtest/gtest.h>

#include <cstddef>
#include <random>

#include "base/error.h"
#include "plan/sample_plan.h"

namespace opwright {
namespace {

/// Fields and launches that are consistent and otherwise anything.
class AnyAttributes {
 public:
  explicit AnyAttributes(unsigned seed) : random_(seed) {}

  FieldValue field() {
    FieldValue made;
    made.name = text();
    made.type = static_cast<PluginFieldType>(below(EnumMax<PluginFieldType>()));
    made.length = below(20);
    if (below(2) == 0) {
      made.extents.emplace();
      const bool is_texts = made.type == PluginFieldType::kCHAR;
      made.length = is_texts ? 0 : 1;
      for (int count = below(4); count > 0; --count) {
        const int extent = below(4);
        made.extents->push_back(extent);
        made.length = is_texts ? made.length + extent : made.length * extent;
      }
    }
    std::vector<char> bytes(field_bytes(made.type, made.length));
    for (char& byte : bytes) byte = static_cast<char>(random_());
    made.data = Blob::copy(bytes.data(), bytes.size());
    return made;
  }

  KernelLaunch launch() {
    KernelLaunch made;
    made.symbol = text();
    made.layer_kind = text();
    for (int32_t i = 0, count = 1 + below(30); i < count; ++i) {
      ExprInstruction instruction{ExprOp::kConstant, 0, 0, 0, static_cast<int64_t>(random_())};
      if (i > 0 && below(2) == 0)
        instruction = {ExprOp::kSelect, below(i), below(i), below(i), 0};
      else if (below(2) == 0)
        instruction = {ExprOp::kSymbol, 0, 0, 0, below(1000)};
      made.program.push_back(instruction);
    }
    const auto index = [&] { return below(static_cast<int>(made.program.size())); };
    for (int32_t& extent : made.grid) extent = index();
    for (int32_t& extent : made.block) extent = index();
    made.shared_memory = index();
    for (int count = below(5); count > 0; --count)
      made.arguments.push_back({static_cast<ArgumentType>(below(7)), index(),
                                std::normal_distribution<double>(0, 1e100)(random_)});
    for (int count = below(4); count > 0; --count) made.scratch.push_back(index());
    for (int count = below(4); count > 0; --count) made.shape_inputs.push_back(below(9));
    const auto indices = [&](int count) {
      std::vector<int32_t> list;
      while (count-- > 0) list.push_back(index());
      return list;
    };
    for (int count = below(3); count > 0; --count) {
      const DataType type = below(2) == 0 ? DataType::kHALF : DataType::kBF16;
      if (below(2) == 0)
        made.maps.push_back({below(9),
                             type,
                             indices(4),
                             indices(3),
                             {64, 1 + below(1024)},
                             {1, 1 + below(8), 1 + below(8), 1},
                             indices(2),
                             indices(2)});
      else
        made.maps.push_back(
            {below(9), type, indices(3), indices(2), {64, 1 + below(256), 1}, {1, 1, 1}, {}, {}});
    }
    for (int count = below(3); count > 0; --count) made.checks.push_back({index(), text()});
    return made;
  }

  int below(int limit) { return static_cast<int>(random_() % static_cast<unsigned>(limit)); }

 private:
  std::string text() {
    std::string made;
    for (int count = below(12); count > 0; --count)
      made.push_back(static_cast<char>(below(4) == 0 ? random_() : "a:[(\n\"0"[below(7)]));
    return made;
  }
  std::mt19937_64 random_;
};

TEST(TypedAttributes, ComeBackToTheBit) {
  for (unsigned seed = 0; seed < 300; ++seed) {
    AnyAttributes any(seed);
    Plan plan = sample_plan();
    FieldValues fields;
    for (int count = any.below(5); count > 0; --count) fields.push_back(any.field());
    const Attributes attributes = {{"fields", fields}, {"launch", any.launch()}};
    plan.schedules[0].steps[1].attributes = attributes;
    const std::vector<std::byte> file = join(serialize(plan));
    const Plan back = deserialize(Blob::copy(file.data(), file.size()));
    ASSERT_EQ(back.schedules[0].steps[1].attributes, attributes) << seed;
    ASSERT_EQ(str(back.schedules[0].steps[1].attributes), str(attributes)) << seed;
  }
}

/// Files whose hashes are right: the reader gets as far as the tables.
/// The file of a plan that serialize() would refuse, whose code and weights are those of
/// sample_plan().
std::vector<std::byte> unchecked_file(const Plan& plan) {
  const std::vector<std::byte> sample = join(serialize(sample_plan()));
  PlanHeader header;
  std::memcpy(&header, sample.data(), sizeof(header));
  std::vector<std::byte> file(sizeof(header));
  const auto append = [&](PlanHeader::Section& section, const std::byte* bytes, size_t size) {
    file.resize((file.size() + PlanHeader::kAlignment - 1) / PlanHeader::kAlignment *
                PlanHeader::kAlignment);
    section.offset = file.size(), section.size = size;
    file.insert(file.end(), bytes, bytes + size);
  };
  const Blob structure = serialize_structure(plan);
  const PlanHeader from = header;
  append(header.plan, structure.data(), structure.size());
  append(header.code, &sample[from.code.offset], from.code.size);
  append(header.weights, &sample[from.weights.offset], from.weights.size);
  header.file_size = file.size();
  const auto set = [](uint64_t(&to)[2], const Hash128& hash) { to[0] = hash[0], to[1] = hash[1]; };
  set(header.plan.hash, hash128(structure.bytes()));
  set(header.hash,
      hash128({reinterpret_cast<const std::byte*>(&header), offsetof(PlanHeader, hash)}));
  std::memcpy(file.data(), &header, sizeof(header));
  return file;
}

TEST(TypedAttributes, HostileFilesAreRefused) {
  const std::vector<std::byte> sound = unchecked_file(sample_plan());
  EXPECT_NO_THROW(deserialize(Blob::copy(sound.data(), sound.size())));

  struct Damage {
    const char* message;
    void (*apply)(FieldValue&, KernelLaunch&);
  };
  const Damage damages[] = {
      {"unknown type 99",
       [](FieldValue& f, KernelLaunch&) { f.type = static_cast<PluginFieldType>(99); }},
      {"has 16 bytes; expected 8",
       [](FieldValue& f, KernelLaunch&) { f.type = PluginFieldType::kFLOAT32; }},
      {"has 15 bytes; expected 16",
       [](FieldValue& f, KernelLaunch&) { f.data = Blob::copy("fifteen bytes..", 15); }},
      {"what its extents",
       [](FieldValue& f, KernelLaunch&) {
         f.extents = {{1LL << 40, 1LL << 40}};
       }},
      {"expression 1000 of 3 as an extent of its grid",
       [](FieldValue&, KernelLaunch& l) { l.grid[0] = 1000; }},
      {"expression -1 of 3 as an extent of its block",
       [](FieldValue&, KernelLaunch& l) { l.block[2] = -1; }},
      {"expression 3 of 3 as its shared memory",
       [](FieldValue&, KernelLaunch& l) { l.shared_memory = 3; }},
      {"expression 3 of 3 as an argument",
       [](FieldValue&, KernelLaunch& l) { l.arguments[0].value = 3; }},
      {"an argument of the unknown type -1",
       [](FieldValue&, KernelLaunch& l) { l.arguments[0].type = static_cast<ArgumentType>(-1); }},
      {"the size of a scratch buffer", [](FieldValue&, KernelLaunch& l) { l.scratch[0] = 3; }},
      {"which is no input", [](FieldValue&, KernelLaunch& l) { l.shape_inputs[0] = -7; }},
      {"as a condition", [](FieldValue&, KernelLaunch& l) { l.checks[0].condition = 77; }},
      {"an expression that is none", [](FieldValue&, KernelLaunch& l) { l.program[2].b = 2; }},
      {"an expression that is none",
       [](FieldValue&, KernelLaunch& l) { l.program[1].op = static_cast<ExprOp>(255); }}};
  for (const Damage& damage : damages) {
    Plan plan = sample_plan();
    std::vector<PlanStep>& steps = plan.schedules[1].steps;
    damage.apply(std::get<FieldValues>(steps[1].attributes[0].value)[0],
                 std::get<KernelLaunch>(steps[2].attributes[0].value));
    const std::vector<std::byte> file = unchecked_file(plan);
    try {
      deserialize(Blob::copy(file.data(), file.size()));
      FAIL() << "accepted: " << damage.message;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(damage.message), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find("layer '"), std::string::npos) << error.what();
    }
  }
}

TEST(TypedAttributes, TextsAreBehindANull) {
  Plan plan = sample_plan();
  const std::vector<std::byte> file = join(serialize(plan));
  const Plan back = deserialize(Blob::copy(file.data(), file.size()));
  const auto& fields =
      std::get<FieldValues>(*find(back.schedules[0].steps[1].attributes, "fields"));
  EXPECT_STREQ(fields[2].data.as<char>(), "abcde");
  EXPECT_EQ(texts_of(fields[2]), (std::vector<std::string_view>{"", "abc", "de"}));
}

TEST(TypedAttributes, TextsTellThemApart) {
  const FieldValue one{"k", PluginFieldType::kINT32, 1, Blob::copy("\1\0\0\0", 4)};
  EXPECT_EQ(str(one), "k: INT32[1] = [1]");
  for (const auto& change : std::vector<void (*)(FieldValue&)>{
           [](FieldValue& f) { f.name = "j"; },
           [](FieldValue& f) { f.type = PluginFieldType::kFLOAT32; },
           [](FieldValue& f) { f.extents.emplace(); },
           [](FieldValue& f) { f.data = Blob::copy("\2\0\0\0", 4); }}) {
    FieldValue other = one;
    change(other);
    EXPECT_NE(str(other), str(one));
  }
  KernelLaunch launch =
      std::get<KernelLaunch>(sample_plan().schedules[0].steps[2].attributes[0].value);
  const std::string text = str(launch);
  launch.arguments[1].constant = std::nextafter(launch.arguments[1].constant, 0);
  EXPECT_NE(str(launch), text);
}

}  // namespace
}  // namespace opwright
