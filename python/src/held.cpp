#include "held.h"

#include <algorithm>
#include <unordered_map>
#include <vector>

namespace opwright::python {
namespace {

/// Kept objects by holder. Used under the interpreter's lock. Never destroyed, since objects still
/// end at the interpreter's very end.
std::unordered_map<PyObject*, std::vector<PyObject*>>& kept() {
  static auto* all = new std::unordered_map<PyObject*, std::vector<PyObject*>>;
  return *all;
}

void drop_kept(void* holder) noexcept {
  auto node = kept().extract(static_cast<PyObject*>(holder));
  for (PyObject* object : node.mapped()) Py_DECREF(object);
}

}  // namespace

void hold(nb::handle holder, nb::handle object) {
  if (!holder.is_valid() || holder.is_none()) return;
  const auto [entry, is_new] = kept().try_emplace(holder.ptr());
  std::vector<PyObject*>& objects = entry->second;
  if (std::find(objects.begin(), objects.end(), object.ptr()) != objects.end()) return;
  objects.push_back(object.inc_ref().ptr());
  if (is_new) NB_CALL(keep_alive_ptr)(NB_CTX, holder.ptr(), holder.ptr(), drop_kept);
}

void tell_kept(nb::handle holder, HeldObjects& held) {
  const auto found = kept().find(holder.ptr());
  if (found == kept().end()) return;
  for (PyObject* object : found->second) held.tell(nb::handle(object));
}

}  // namespace opwright::python
