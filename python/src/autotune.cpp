// AutoTuneCombination: what a plugin's autotune function returns.

#include "plugin/model/autotune.h"

#include "base/error.h"
#include "plugin_bindings.h"

namespace opwright::python {
namespace {

/// Integers of an int or a sequence of them, IntEnum members included.
std::vector<int64_t> to_integers(nb::handle values, const char* what) {
  std::vector<int64_t> integers;
  auto add = [&](nb::handle value) {
    nb::object index = nb::steal(PyNumber_Index(value.ptr()));
    if (!index.is_valid()) {
      PyErr_Clear();
      fail(what, " must be integers; ", nb::cast<std::string>(nb::repr(value)), " came");
    }
    integers.push_back(nb::cast<int64_t>(index));
  };
  if (PyIndex_Check(values.ptr())) {
    add(values);
  } else {
    for (nb::handle value : nb::iter(values)) add(value);
  }
  return integers;
}

void set_tactics(AutoTuneCombination& self, nb::handle tactics) {
  std::vector<std::string> names;
  const std::vector<int64_t> values = to_integers(tactics, "tactics");
  if (!PyIndex_Check(tactics.ptr()))
    for (nb::handle tactic : nb::iter(tactics))
      if (nb::hasattr(tactic, "name")) names.push_back(nb::cast<std::string>(tactic.attr("name")));
  if (names.size() != values.size()) names.clear();
  self.tactics(values, names);
}

/// `combination.tactics`: a sequence that can also be called, as TensorRT's method is.
struct Tactics {
  nb::object combination;
  nb::list list() const {
    nb::list values;
    for (const int64_t tactic : nb::cast<AutoTuneCombination&>(combination).tactics())
      values.append(tactic);
    return values;
  }
};

nb::object text_or_none(const std::string& text) {
  return text.empty() ? nb::none() : nb::object(nb::str(text.c_str()));
}

std::string repr_of(const AutoTuneCombination& self) {
  std::string text = "AutoTuneCombination(";
  const auto add = [&](const char* name, const std::string& value) {
    if (!value.empty()) text += str(text.back() == '(' ? "" : ", ", name, "=", value);
  };
  const auto quoted = [](const std::string& value) {
    return value.empty() ? "" : "\"" + value + "\"";
  };
  std::string tactics;
  for (const int64_t tactic : self.tactics()) tactics += str(tactics.empty() ? "[" : ", ", tactic);
  add("io_types", quoted(self.io_types()));
  add("layouts", quoted(self.layouts()));
  add("tactics", tactics.empty() ? "" : tactics + "]");
  return text + ")";
}

}  // namespace

void bind_autotune(nb::module_& m) {
  nb::class_<Tactics>(m, "Tactics", "The tactics of an AutoTuneCombination; a call sets them.")
      .def(
          "__call__",
          [](const Tactics& self, nb::handle tactics) {
            set_tactics(nb::cast<AutoTuneCombination&>(self.combination), tactics);
          },
          nb::arg("tactics"),
          nb::sig("def __call__(self, tactics: int | collections.abc.Iterable[int]) -> None"),
          "Sets the tactics: positive integers or members of an IntEnum.")
      .def("__len__", [](const Tactics& self) { return nb::len(self.list()); })
      .def(
          "__getitem__",
          [](const Tactics& self, nb::ssize_t index) {
            return nb::steal(PySequence_GetItem(self.list().ptr(), index));
          },
          nb::arg("index"), nb::sig("def __getitem__(self, index: int) -> int"))
      .def(
          "__iter__", [](const Tactics& self) { return nb::iter(self.list()); },
          nb::sig("def __iter__(self) -> collections.abc.Iterator[int]"))
      .def("__eq__",
           [](const Tactics& self, nb::handle other) {
             return self.list().equal(nb::list(nb::borrow(other)));
           })
      .def("__repr__", [](const Tactics& self) { return nb::repr(self.list()); });
  nb::class_<AutoTuneCombination>(
      m, "AutoTuneCombination",
      "Types, layouts and tactics in which a plugin can run. `io_types` and `layouts` have an "
      "entry for each input and output, separated by commas; in an entry, `|` separates "
      "alternatives that move together across entries, `*` alternatives that are free. One layout "
      "stands for all. Tactics are positive integers or members of an IntEnum.")
      .def(
          "__init__",
          [](AutoTuneCombination* self, std::optional<std::string> io_types,
             std::optional<std::string> layouts, nb::handle tactics) {
            new (self) AutoTuneCombination(io_types.value_or(""), layouts.value_or(""));
            if (!tactics.is_none()) set_tactics(*self, tactics);
          },
          nb::arg("io_types").none() = nb::none(), nb::arg("layouts").none() = nb::none(),
          nb::arg("tactics").none() = nb::none(),
          nb::sig("def __init__(self, io_types: str | None = None, layouts: str | None = None, "
                  "tactics: int | collections.abc.Iterable[int] | None = None) -> None"))
      .def(
          "pos",
          [](AutoTuneCombination& self, nb::handle positions, const std::string& types,
             const std::string& layouts) {
            const std::vector<int64_t> wide = to_integers(positions, "positions");
            const std::vector<int> ports(wide.begin(), wide.end());
            self.pos(ports, types, layouts);
          },
          nb::arg("pos"), nb::arg("io_types"), nb::arg("layouts") = "LINEAR",
          nb::sig("def pos(self, pos: int | collections.abc.Iterable[int], io_types: str, layouts: "
                  "str = 'LINEAR') -> None"),
          "Sets the entries of these inputs and outputs, which are counted together: input 0 is 0, "
          "the first output follows the last input.\n\n:raises Error: for an entry that is set "
          "already.")
      .def_prop_ro(
          "tactics", [](nb::object self) { return Tactics{std::move(self)}; },
          "The tactics, a sequence of integers; `tactics([...])` sets them: positive integers or "
          "members of an IntEnum.")
      .def_prop_ro(
          "io_types", [](const AutoTuneCombination& self) { return text_or_none(self.io_types()); },
          nb::sig("def io_types(self) -> str | None"),
          "The types as text, also of those that pos() set; None where there are none.")
      .def_prop_ro(
          "layouts", [](const AutoTuneCombination& self) { return text_or_none(self.layouts()); },
          nb::sig("def layouts(self) -> str | None"),
          "The layouts as text, also of those that pos() set; None where there are none.")
      .def("__repr__", &repr_of);
}

}  // namespace opwright::python
