// ILoop, IIfConditional and IAttention.

#include "regions.h"

#include "control/regions.h"
#include "held.h"
#include "layers.h"
#include "operators/attention.h"
#include "reporting.h"

namespace opwright::python {
namespace {

constexpr auto kReference = nb::rv_policy::reference;
constexpr nb::call_policy<HoldsMaker> kHeld{};

template <class T>
T attention_property(const AttentionHandle& self, const char* name) {
  return static_cast<T>(std::get<int64_t>(get_property(*self.layer, name)));
}

template <class T, class C>
void bind_attention_property(C& c, const char* name, const char* doc) {
  c.def_prop_rw(
      name, [name](const AttentionHandle& self) { return attention_property<T>(self, name); },
      [name](AttentionHandle& self, T value) {
        set_property(*self.layer, name, static_cast<int64_t>(value));
      },
      doc);
}

template <class C>
void bind_attention_input(C& c, const char* name, int index, const char* doc) {
  c.def_prop_rw(
      name,
      [index](const AttentionHandle& self) {
        return index < self.layer->num_inputs() ? self.layer->input(index) : nullptr;
      },
      [index](AttentionHandle& self, Tensor* tensor) { self.layer->set_input(index, tensor); },
      kReference, kHeld, nb::for_setter(nb::arg(name).none()), doc);
}

void bind_attention(nb::module_& m) {
  nb::class_<AttentionHandle> c(m, "IAttention", nb::type_slots(part_slots<AttentionHandle>()),
                                "softmax(Q K^T + mask) V. The query or the key has the scale of "
                                "the scores already. It is one layer of the network, of type "
                                "ATTENTION_OUTPUT.");
  c.def_prop_rw(
       "name", [](const AttentionHandle& self) { return self.layer->name(); },
       [](AttentionHandle& self, std::string name) { self.layer->set_name(std::move(name)); })
      .def_prop_rw(
          "metadata", [](const AttentionHandle& self) { return self.layer->metadata(); },
          [](AttentionHandle& self, std::string text) {
            self.layer->set_metadata(std::move(text));
          })
      .def_prop_ro("num_inputs",
                   [](const AttentionHandle& self) { return self.layer->num_inputs(); })
      .def_prop_ro("num_outputs",
                   [](const AttentionHandle& self) { return self.layer->num_outputs(); })
      .def(
          "set_input",
          [](AttentionHandle& self, int index, Tensor* tensor) {
            self.layer->set_input(index, tensor);
            return true;
          },
          nb::arg("index"), nb::arg("tensor").none(),
          "Inputs in this order: query, key, value, mask, scale of the quantization.")
      .def(
          "get_input",
          [](const AttentionHandle& self, int index) { return self.layer->input(index); },
          nb::arg("index"), kReference, kHeld)
      .def(
          "get_output",
          [](const AttentionHandle& self, int index) { return self.layer->output(index); },
          nb::arg("index"), kReference, kHeld)
      .def("__eq__",
           [](const AttentionHandle& self, nb::handle other) {
             const AttentionHandle* attention = nullptr;
             return nb::try_cast(other, attention) && attention->layer == self.layer;
           })
      .def("__hash__",
           [](const AttentionHandle& self) { return reinterpret_cast<uintptr_t>(self.layer); });
  bind_attention_property<AttentionNormalizationOp>(c, "norm_op", "What becomes of the scores.");
  bind_attention_property<CausalMaskKind>(c, "causal_kind",
                                          "Which keys a query meets. Not together with a mask.");
  bind_attention_property<bool>(c, "decomposable",
                                "Whether it may be run as several layers. It always is.");
  bind_attention_property<int>(
      c, "num_ranks",
      "Over how many ranks the keys, the values and the mask are split by the keys' axis. All "
      "ranks "
      "have the same queries, and all get the result. Not together with a causal mask, whose "
      "positions a rank does not know, nor with quantized weights.");
  bind_attention_property<DataType>(c, "normalization_quantize_to_type",
                                    "FP8 or INT8; FLOAT: not quantized, or to FP8 where there is a "
                                    "scale.");
  bind_attention_property<AttentionIOForm>(
      c, "query_form", "PADDED_BHND; a network with another form cannot be built.");
  bind_attention_property<AttentionIOForm>(c, "key_value_form", "Likewise.");
  c.def_prop_rw(
      "causal",
      [](const AttentionHandle& self) {
        return attention_property<CausalMaskKind>(self, "causal_kind") != CausalMaskKind::kNONE;
      },
      [](AttentionHandle& self, bool causal) {
        set_property(
            *self.layer, "causal_kind",
            static_cast<int64_t>(causal ? CausalMaskKind::kUPPER_LEFT : CausalMaskKind::kNONE));
      },
      "True: CausalMaskKind.UPPER_LEFT.");
  bind_attention_input(c, "mask", Attention::kMask,
                       "Broadcasts to [batch, heads, queries, keys]: BOOL, true where a key is "
                       "met, or of the query's type, added to the scores.");
  bind_attention_input(c, "normalization_quantize_scale", Attention::kQuantizeScale,
                       "The weights are rounded to multiples of it before values are summed.");
  bind_attention_input(c, "query_lengths", Attention::kQueryLengths,
                       "How many queries of each batch count: INT32 or INT64, [batch].");
  bind_attention_input(c, "key_value_lengths", Attention::kKeyValueLengths,
                       "How many keys and values of each batch count: INT32 or INT64, [batch].");
}

template <class T>
T& region_of(const Layer& layer) {
  return static_cast<T&>(boundary_of(layer)->region());
}

}  // namespace

void bind_region_layers(nb::module_& m) {
  nb::class_<LoopRegion>(m, "ILoop", nb::type_slots(part_slots<LoopRegion>()),
                         "Layers that run again and again: those that depend on a recurrence or an "
                         "iterator, up to the outputs. Whether the loop is complete is looked at "
                         "when the network is built.");
  nb::class_<ConditionalRegion>(m, "IIfConditional",
                                nb::type_slots(part_slots<ConditionalRegion>()),
                                "Two branches of layers. A condition decides which branch gives "
                                "the result. Layers between an input and an output belong to the "
                                "branch of that output.");
  bind_attention(m);
  nb::class_<LoopBoundaryLayer, Layer>(m, "ILoopBoundaryLayer", "A layer at the border of a loop.")
      .def_prop_ro(
          "loop", [](const LoopBoundaryLayer& self) { return &region_of<LoopRegion>(self); },
          kReference, kHeld);
  nb::class_<ConditionalBoundaryLayer, Layer>(m, "IIfConditionalBoundaryLayer",
                                              "A layer at the border of a conditional.")
      .def_prop_ro(
          "conditional",
          [](const ConditionalBoundaryLayer& self) { return &region_of<ConditionalRegion>(self); },
          kReference, kHeld);
  nb::class_<AttentionBoundaryLayer, Layer>(m, "IAttentionBoundaryLayer",
                                            "A layer at the border of an attention.")
      .def_prop_ro(
          "attention", [](AttentionBoundaryLayer& self) { return AttentionHandle{&self}; }, kHeld);
}

void bind_regions(nb::module_& m) {
  auto loop = nb::borrow<nb::class_<LoopRegion>>(m.attr("ILoop"));
  loop.def_prop_rw("name", &LoopRegion::name, &LoopRegion::set_name)
      .def("add_recurrence", &LoopRegion::add_recurrence, nb::arg("initial_value"), kReference,
           kHeld,
           "A value that an iteration hands to the next: the output is input 0 in the first one, "
           "and in each other one what input 1 was in the one before. The layer needs "
           "set_input(1, tensor) before a build. Type and shape stay.")
      .def("add_trip_limit", &LoopRegion::add_trip_limit, nb::arg("tensor"), nb::arg("kind"),
           kReference, kHeld,
           "What ends the loop: COUNT, one INT32 or INT64 from outside, or WHILE, one BOOL from "
           "inside. At most one of each; with both the loop ends as soon as one says so.")
      .def("add_iterator", &LoopRegion::add_iterator, nb::arg("tensor"), nb::arg("axis") = 0,
           nb::arg("reverse") = false, kReference, kHeld,
           "The elements of a tensor at the number of the iteration along an axis, which goes; "
           "`reverse` begins with what belongs to the last iteration.")
      .def("add_loop_output", &LoopRegion::add_loop_output, nb::arg("tensor"), nb::arg("kind"),
           nb::arg("axis") = 0, kReference, kHeld,
           "What leaves the loop: the last value of a recurrence's output, or what iterations give "
           "along a new axis, whose extent is set_input(1, length).");
  auto conditional = nb::borrow<nb::class_<ConditionalRegion>>(m.attr("IIfConditional"));
  conditional.def_prop_rw("name", &ConditionalRegion::name, &ConditionalRegion::set_name)
      .def("set_condition", &ConditionalRegion::set_condition, nb::arg("condition"), kReference,
           kHeld, "One BOOL, which decides. Once.")
      .def("add_input", &ConditionalRegion::add_input, nb::arg("input"), kReference, kHeld,
           "A tensor that branches read: what depends on it belongs to them.")
      .def("add_output", &ConditionalRegion::add_output, nb::arg("true_subgraph_output"),
           nb::arg("false_subgraph_output"), kReference, kHeld,
           "Gives one of two tensors of the same type and rank. If their extents differ, the "
           "result's extents are known when the conditional has run.");
  auto network = nb::borrow<ReportingClass<Network>>(m.attr("INetworkDefinition"));
  network.def("add_loop", &add_loop, kReference, kHeld,
              "A loop without layers, to which its methods add those at its border.");
  network.def("add_if_conditional", &add_conditional, kReference, kHeld,
              "A conditional without layers, likewise.");
}

}  // namespace opwright::python
