// INetworkDefinition, ITensor, ILayer. The add_* methods are in add_layers.cpp.

#include "network/network.h"

#include "debug_tensors.h"
#include "held.h"
#include "layers.h"
#include "network/shape_inputs.h"
#include "operators/layer_types.h"
#include "opwright/network.h"
#include "reporting.h"
#include "representations.h"

namespace opwright::python {
namespace {

void check_index(int index, int count, const char* what) {
  if (index < 0 || index >= count)
    throw nb::index_error(
        (std::string(what) + " " + std::to_string(index) + " of " + std::to_string(count)).c_str());
}

/// A property that is inferred when a program reads it. Errors of the inference are reported to the
/// recorder.
template <class F>
auto inferred(F get) {
  return [get](const Tensor& self) {
    try {
      return get(self);
    } catch (...) {
      record_exception(self.network().errors());
      throw;
    }
  };
}

void bind_tensor(nb::module_& m) {
  nb::class_<Tensor>(m, "ITensor", nb::type_slots(part_slots<Tensor>()),
                     "A tensor of a network that is being defined.")
      .def_prop_rw("name", &Tensor::name, &Tensor::set_name)
      .def_prop_rw(
          "shape", inferred([](const Tensor& self) { return self.shape(); }),
          [](Tensor& self, nb::handle shape) { self.set_shape(to_shape(shape)); },
          "Extents, -1 where they are known at run time only; raises Error while a layer does not "
          "fit. "
          "Network inputs can be given another.")
      .def_prop_rw("dtype", inferred([](const Tensor& self) { return self.engine_type(); }),
                   &Tensor::set_dtype,
                   "The type of its elements. It can be set for network inputs, and for outputs of "
                   "networks that are not strongly typed, whose FLOAT, HALF and BF16 elements the "
                   "engine converts.")
      .def_prop_rw(
          "location", [](const Tensor&) { return TensorLocation::kDEVICE; },
          [](const Tensor& self, TensorLocation location) {
            require(location == TensorLocation::kDEVICE, "tensor '", self.name(),
                    "': its elements are on the device, so its location cannot be set to HOST");
          },
          "DEVICE; any other raises Error.")
      .def_prop_ro(
          "broadcast_across_batch", [](const Tensor&) { return false; },
          "False: the batch is a dimension like others.")
      .def_prop_rw("allowed_formats", &Tensor::allowed_formats, &Tensor::set_allowed_formats,
                   "Formats that a network input or output may have: bit 1 << int(TensorFormat).")
      .def(
          "set_dynamic_range",
          [](Tensor& self, float min, float max) {
            self.set_dynamic_range(min, max);
            return true;
          },
          nb::arg("min"), nb::arg("max"),
          "The range that INT8 elements cover; their scale is max(|min|, |max|) / 127. With "
          "BuilderFlag.INT8, plugins may take or give the tensor quantized.")
      .def("reset_dynamic_range", &Tensor::reset_dynamic_range)
      .def_prop_ro("dynamic_range", &Tensor::dynamic_range, "(min, max), or None.")
      .def_prop_ro("is_network_input", &Tensor::is_network_input)
      .def_prop_ro("is_network_output", &Tensor::is_network_output)
      .def_prop_ro("is_shape_tensor",
                   inferred([](const Tensor& self) { return self.is_shape_tensor(); }),
                   "Whether its values are known when shapes are, from constants, shapes and shape "
                   "inputs, and its rank is 0 or 1.")
      .def_prop_ro("is_execution_tensor", [](const Tensor&) { return true; })
      .def("set_dimension_name", &Tensor::set_dimension_name, nb::arg("index"), nb::arg("name"),
           "Inputs only: extents with equal names are equal at run time.")
      .def("get_dimension_name", &Tensor::dimension_name, nb::arg("index"))
      .def("__repr__", [](const Tensor& self) {
        try {
          return str("<ITensor '", self.name(), "' ", name(self.dtype()), " ", self.shape(), ">");
        } catch (const Error&) {
          return str("<ITensor '", self.name(), "' of a layer that does not fit>");
        }
      });
}

void bind_layer(nb::module_& m) {
  nb::class_<Layer>(m, "ILayer", nb::type_slots(part_slots<Layer>()),
                    "An operator applied to tensors of a network.")
      .def_prop_rw("name", &Layer::name, &Layer::set_name)
      .def_prop_rw("metadata", &Layer::metadata, &Layer::set_metadata)
      .def_prop_ro("num_inputs", &Layer::num_inputs)
      .def_prop_ro("num_outputs", &Layer::num_outputs)
      .def("get_input", &Layer::input, nb::arg("index"), nb::rv_policy::reference,
           nb::call_policy<HoldsMaker>())
      .def("get_output", &Layer::output, nb::arg("index"), nb::rv_policy::reference,
           nb::call_policy<HoldsMaker>())
      .def(
          "set_input",
          [](Layer& self, int index, Tensor* tensor) {
            if (tensor != nullptr && &tensor->network() == &self.network() &&
                self.op()->is_shape_input(index))
              make_shape_inputs(*tensor);
            self.set_input(index, tensor);
          },
          nb::arg("index"), nb::arg("tensor").none())
      .def(
          "get_output_type",
          [](const Layer& self, int index) { return self.output(index)->engine_type(); },
          nb::arg("index"), "The type that was set, or that the layer gives its output.")
      .def(
          "set_output_type",
          [](Layer& self, int index, DataType dtype) {
            self.output(index)->set_stored_type(dtype);
          },
          nb::arg("index"), nb::arg("dtype"),
          "The type, FLOAT, HALF or BF16, that an output is to be stored in: an output of the "
          "network has it, for others it is heeded as `precision` is.")
      .def(
          "output_type_is_set",
          [](const Layer& self, int index) {
            return self.output(index)->stored_type().has_value();
          },
          nb::arg("index"), "Whether set_output_type was called for the output.")
      .def(
          "reset_output_type",
          [](Layer& self, int index) { self.output(index)->reset_stored_type(); }, nb::arg("index"),
          "Takes set_output_type back.")
      .def_prop_rw(
          "precision", &Layer::computed_in, &Layer::set_precision,
          "The type of floating inputs that the layer is to compute with: what was set, or the "
          "type "
          "of its first floating tensor. A build heeds it where "
          "BuilderFlag.OBEY_PRECISION_CONSTRAINTS or PREFER_PRECISION_CONSTRAINTS is set, and the "
          "flag of a type that is lower than the network's. Setting it raises Error for strongly "
          "typed networks.")
      .def_prop_ro(
          "precision_is_set", [](const Layer& self) { return self.precision().has_value(); },
          "Whether `precision` was set.")
      .def("reset_precision", &Layer::reset_precision, "Takes setting `precision` back.")
      .def_prop_rw(
          "num_ranks", [](const Layer&) { return 1; },
          [](Layer& self, int ranks) {
            require(ranks == 1, "num_ranks: layer '", self.name(), "' works with 1 rank, not ",
                    ranks, "; collective layers work with several");
          },
          "1: only collective layers work with several ranks.")
      .def_prop_ro(
          "type", [](const Layer& self) { return layer_type(self); },
          "What the layer is. IActivationLayer and IPoolingLayer have a `type` of their own, which "
          "is their operation; of a layer that the network gives (network[i]) it is a LayerType "
          "until `layer.__class__ = IActivationLayer`.")
      .def("__eq__",
           [](const Layer& self, nb::handle other) {
             const Layer* layer = nullptr;
             return nb::try_cast(other, layer) && layer == &self;
           })
      .def("__hash__", [](const Layer& self) { return reinterpret_cast<uintptr_t>(&self); })
      .def_prop_ro(
          "kind", [](const Layer& self) { return std::string(self.op()->kind()); },
          "The operation's name, such as 'Convolution'.")
      .def("__repr__", [](const Layer& self) {
        return "<ILayer '" + self.name() + "' " + std::string(self.op()->kind()) + ">";
      });
}

}  // namespace

/// Binds the methods for a network's outputs.
void bind_outputs(ReportingClass<Network>& c) {
  c.def("mark_output", &Network::mark_output, nb::arg("tensor"))
      .def("unmark_output", &Network::unmark_output, nb::arg("tensor"))
      .def("mark_output_for_shapes", &Network::mark_output_for_shapes, nb::arg("tensor"),
           "Marks a shape tensor, whose elements are known when shapes are. False, and nothing is "
           "marked, for another tensor.")
      .def("unmark_output_for_shapes", &Network::unmark_output_for_shapes, nb::arg("tensor"),
           "Takes that back; False for a tensor that is no such output.")
      .def("remove_tensor", &Network::remove_tensor, nb::arg("tensor"),
           "Takes out a network input that no layer uses. For other tensors it is a warning.");
}

/// Binds the names of weights, for refitting.
void bind_weight_names(ReportingClass<Network>& c) {
  c.def(
       "set_weights_name",
       [](Network& self, nb::handle weights, std::string name) {
         const void* const elements[] = {to_array(weights, "set_weights_name").data.data()};
         set_weights_name(self, elements, std::move(name));
         return true;
       },
       nb::arg("weights"), nb::arg("name"),
       "Names weights that a layer was given, by the same array, for refitting; others have the "
       "name of their constant layer's output.")
      .def(
          "mark_weights_refittable",
          [](Network& self, const std::string& name) {
            return mark_weights_refittable(self, name, true);
          },
          nb::arg("name"),
          "Lets an engine that is built with BuilderFlag.REFIT_INDIVIDUAL be refitted with other "
          "weights of the name. False when there are none.")
      .def(
          "unmark_weights_refittable",
          [](Network& self, const std::string& name) {
            return mark_weights_refittable(self, name, false);
          },
          nb::arg("name"))
      .def(
          "are_weights_marked_refittable",
          [](const Network& self, const std::string& name) {
            return are_weights_marked_refittable(self, name);
          },
          nb::arg("name"));
}

void tell_network(const Network& network, HeldObjects& held) {
  held.tell(network.errors().recorder());
}

void bind_network(nb::module_& m) {
  bind_tensor(m);
  bind_layer(m);
  ReportingClass<Network> c(m, "INetworkDefinition",
                            "A network of tensors and layers. Made by Builder.create_network.",
                            nb::type_slots(holder_slots<Network, tell_network>()));
  add_context_manager(c);
  bind_debug_marks(c);
  c.def("__repr__", [](const Network& self) { return describe(self); })
      .def_prop_rw("name", &Network::name, &Network::set_name)
      .def_error_recorder()
      .def_prop_ro("num_layers", &Network::num_layers)
      .def_prop_ro("num_inputs", [](const Network& self) { return self.inputs().size(); })
      .def_prop_ro("num_outputs", [](const Network& self) { return self.outputs().size(); })
      .def_prop_ro("has_implicit_batch_dimension", [](const Network&) { return false; })
      .def_prop_ro(
          "flags", [](const Network& self) { return self.flags().bits; },
          "Bits 1 << int(NetworkDefinitionCreationFlag), as create_network was given them.")
      .def(
          "get_flag",
          [](const Network& self, NetworkDefinitionCreationFlag flag) {
            return (self.flags().bits >> static_cast<int>(flag) & 1) != 0;
          },
          nb::arg("flag"))
      .def("__len__", &Network::num_layers)
      .def(
          "__getitem__",
          [](Network& self, int index) {
            const int layer = index < 0 ? index + self.num_layers() : index;
            check_index(layer, self.num_layers(), "layer");
            return layer_object(*self.layer(layer), nb::find(self));
          },
          nb::arg("index"), nb::sig("def __getitem__(self, index: int) -> ILayer"))
      .def(
          "__getitem__",
          [](Network& self, const nb::slice& slice) {
            const auto [start, stop, step, count] =
                slice.compute(static_cast<size_t>(self.num_layers()));
            nb::list layers;
            for (size_t i = 0; i < count; ++i) {
              const auto layer = start + static_cast<Py_ssize_t>(i) * step;
              layers.append(layer_object(*self.layer(static_cast<int>(layer)), nb::find(self)));
            }
            return layers;
          },
          nb::arg("index"), nb::sig("def __getitem__(self, index: slice) -> list[ILayer]"))
      .def(
          "get_layer",
          [](Network& self, int index) {
            check_index(index, self.num_layers(), "layer");
            return layer_object(*self.layer(index), nb::find(self));
          },
          nb::arg("index"), nb::sig("def get_layer(self, index: int) -> ILayer"),
          "A layer, as an object of its class.")
      .def(
          "get_input",
          [](Network& self, int index) {
            check_index(index, static_cast<int>(self.inputs().size()), "input");
            return self.inputs()[index];
          },
          nb::arg("index"), nb::rv_policy::reference, nb::call_policy<HoldsMaker>())
      .def(
          "get_output",
          [](Network& self, int index) {
            check_index(index, static_cast<int>(self.outputs().size()), "output");
            return self.outputs()[index];
          },
          nb::arg("index"), nb::rv_policy::reference, nb::call_policy<HoldsMaker>())
      .def(
          "add_input",
          [](Network& self, std::string name, DataType dtype, nb::handle shape) {
            return self.add_input(std::move(name), dtype, to_shape(shape));
          },
          nb::arg("name"), nb::arg("dtype"), nb::arg("shape"), nb::rv_policy::reference,
          nb::call_policy<HoldsMaker>(),
          "An input; extents of -1 are given at run time and need an optimization profile.");
  bind_outputs(c);
  bind_weight_names(c);
}

}  // namespace opwright::python
