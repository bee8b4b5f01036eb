// KernelLaunchParams, ISymExprs and their scalars, which plugins of the Quick family set.

#include "quick_launch_refs.h"

#include <map>

#include "base/error.h"
#include "plugin_callbacks.h"

namespace opwright::python {
namespace {

/// The C++ face of a Python ISymExpr, read when it is made.
class SymExprFace final : public ISymExpr {
 public:
  SymExprFace(nb::handle object, const std::string& what) {
    const auto read = [&](const char* attribute, auto& to, const char* expected) {
      require(nb::hasattr(object, attribute) && nb::try_cast(object.attr(attribute), to), what,
              ": expected an ISymExpr, whose ", attribute, " is ", expected, "; ", shown(object),
              " came");
    };
    DimensionExpr expr;
    read("type", type_, "a PluginArgType");
    read("dtype", data_type_, "a PluginArgDataType");
    read("expr", expr, "an IDimensionExpr");
    expr_ = &expr.get();
  }
  PluginArgType getType() const noexcept override { return type_; }
  PluginArgDataType getDataType() const noexcept override { return data_type_; }
  void* getExpr() noexcept override { return const_cast<IDimensionExpr*>(expr_); }

 private:
  PluginArgType type_{};
  PluginArgDataType data_type_{};
  const IDimensionExpr* expr_ = nullptr;
};

/// The Python objects that were set, by slot, and their C++ faces. The C++ side points to the
/// faces.
class SymExprSlots {
 public:
  SymExprSlots() = default;
  SymExprSlots(SymExprSlots&&) = default;
  template <class Set>
  void set(int32_t slot, nb::object object, const std::string& what, Set&& set) {
    auto face = std::make_unique<SymExprFace>(object, what);
    // A value that is not taken is reported after the call, where the reason is known.
    if (!set(face.get())) return;
    slots_[slot] = {std::move(object), std::move(face)};
  }
  nb::object get(int32_t slot) const {
    const auto found = slots_.find(slot);
    return found != slots_.end() ? found->second.object : nb::none();
  }

 private:
  struct Slot {
    nb::object object;
    std::unique_ptr<SymExprFace> face;
  };
  std::map<int32_t, Slot> slots_;
};

template <class Target>
struct Ref {
  Target* target = nullptr;
  SymExprSlots slots;
  Target& get() const {
    require(target != nullptr, "this object cannot be used after get_launch_params");
    return *target;
  }
};
using LaunchParamsRef = Ref<IKernelLaunchParams>;
using SymExprsRef = Ref<ISymExprs>;

int32_t argument_at(const SymExprsRef& self, nb::ssize_t index) {
  const nb::ssize_t count = self.get().getNbSymExprs();
  if (index < 0) index += count;
  if (index < 0 || index >= count) throw nb::index_error();
  return static_cast<int32_t>(index);
}

}  // namespace

LaunchRefs::LaunchRefs(IKernelLaunchParams& launch_params, ISymExprs& arguments)
    : launch_params_(nb::cast(LaunchParamsRef{&launch_params, {}})),
      arguments_(nb::cast(SymExprsRef{&arguments, {}})) {}

LaunchRefs::~LaunchRefs() {
  nb::inst_ptr<LaunchParamsRef>(launch_params_)->target = nullptr;
  nb::inst_ptr<SymExprsRef>(arguments_)->target = nullptr;
}

IKernelLaunchParams& launch_params_of(nb::handle object) {
  return instance<LaunchParamsRef&>(object, "KernelLaunchParams").get();
}

ISymExprs& sym_exprs_of(nb::handle object) {
  return instance<SymExprsRef&>(object, "ISymExprs").get();
}

void bind_quick_launch(nb::module_& m) {
  nb::enum_<PluginArgType>(m, "PluginArgType", nb::is_arithmetic(),
                           "The kind of an extra argument of a compiled kernel.")
      .value("INT", PluginArgType::kINT);
  nb::enum_<PluginArgDataType>(m, "PluginArgDataType", nb::is_arithmetic(),
                               "The type of an extra argument of a compiled kernel.")
      .value("INT8", PluginArgDataType::kINT8)
      .value("INT16", PluginArgDataType::kINT16)
      .value("INT32", PluginArgDataType::kINT32);

  auto params = nb::class_<LaunchParamsRef>(
      m, "KernelLaunchParams",
      "How a compiled kernel is launched: blocks of the grid, threads of a block, bytes of shared "
      "memory, each an ISymExpr. On the CPU a cell of the grid is a task.");
  int32_t slot = 0;
  const auto property = [&](const char* name,
                            bool (IKernelLaunchParams::*set)(ISymExpr*) noexcept) {
    params.def_prop_rw(
        name, [slot](const LaunchParamsRef& self) { return self.slots.get(slot); },
        [slot, name, set](LaunchParamsRef& self, nb::object value) {
          IKernelLaunchParams& target = self.get();
          self.slots.set(slot, std::move(value), name,
                         [&](ISymExpr* face) { return (target.*set)(face); });
        });
    ++slot;
  };
  property("grid_x", &IKernelLaunchParams::setGridX);
  property("grid_y", &IKernelLaunchParams::setGridY);
  property("grid_z", &IKernelLaunchParams::setGridZ);
  property("block_x", &IKernelLaunchParams::setBlockX);
  property("block_y", &IKernelLaunchParams::setBlockY);
  property("block_z", &IKernelLaunchParams::setBlockZ);
  property("shared_mem", &IKernelLaunchParams::setSharedMem);

  nb::class_<SymExprsRef>(m, "ISymExprs",
                          "The extra arguments of a compiled kernel: a sequence of ISymExpr whose "
                          "length, nbSymExprs, is set first.")
      .def_prop_rw(
          "nbSymExprs", [](const SymExprsRef& self) { return self.get().getNbSymExprs(); },
          [](SymExprsRef& self, int32_t count) { self.get().setNbSymExprs(count); })
      .def("__len__", [](const SymExprsRef& self) { return self.get().getNbSymExprs(); })
      .def("__getitem__",
           [](const SymExprsRef& self, nb::ssize_t index) {
             return self.slots.get(argument_at(self, index));
           })
      .def("__setitem__", [](SymExprsRef& self, nb::ssize_t index, nb::object value) {
        const int32_t at = argument_at(self, index);
        ISymExprs& target = self.get();
        self.slots.set(at, std::move(value), str("extra argument ", at),
                       [&](ISymExpr* face) { return target.setSymExpr(at, face); });
      });
}

}  // namespace opwright::python
