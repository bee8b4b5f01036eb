#include <algorithm>
#include <utility>

#include "backend/gpu/pointwise_math.h"
#include "backend/gpu/product.h"
#include "base/error.h"
#include "base/types.h"
#include "operators/pointwise.h"
#include "operators/type_rules.h"

namespace opwright::gpu {
namespace {

/// A function of the generated code.
std::string function(std::string_view parameters, const std::string& body) {
  return str("[&](", parameters, ") {\n", body, "}");
}

/// The statements `of_batch` if places of the bias or of the program's inputs need the batch.
std::string batch_statements(const ProductEpilogue& epilogue, std::string_view of_batch) {
  const auto has_batch = [](std::string_view element) {
    return !element.empty() && element != "0" && element != "row" && element != "column";
  };
  const bool uses_batch = has_batch(epilogue.bias_element) || has_batch(epilogue.channel_element);
  return std::string(uses_batch ? of_batch : std::string_view());
}

/// ProductProgram::make. The statements `sums` add the bias and the residual to `y`. The statements
/// `elements` define the variables that the program reads.
std::string write_make(const KernelArgs& args, const ProductEpilogue& epilogue,
                       const std::string& of_batch, const std::string& sums,
                       const std::string& elements) {
  const FusedProgram& program = epilogue.program;
  std::string body = str(of_batch,
                         "const Index row = pack.row, column = pack.column + i;\n"
                         "(void)row, (void)column;\n",
                         register_type(sum_type(args.inputs[0].type.dtype)), " y = sum;\n", sums,
                         fused_activation(epilogue.activation));
  if (program.present()) body += elements + fused_program(program, args.outputs[0].type.dtype);
  return function("const ProductTask& task, const auto& pack, const auto& inputs, int i, auto sum",
                  str(body, "return ", program.present() ? "z" : "y", ";\n"));
}

}  // namespace

ResultProgram write_results(KernelSource& source, const KernelArgs& args,
                            const ProductEpilogue& epilogue, const Expr& row_stride, int pack,
                            int staged, std::string_view of_batch) {
  ReturnedMembers inputs;
  std::string sums, elements;
  // Reads an input's neighbours from `place` on. Returns an expression for the i-th of them.
  const auto read = [&](const std::string& name, int input, std::string_view place) {
    const std::string type =
        str("Pack<", storage_type(args.inputs[input].type.dtype), ", ", pack, ">");
    inputs.add(type, name,
               input == staged
                   ? str("*(const ", type, "*)behind.find(pack.tile_row, pack.tile_column)")
                   : str("pack.read(in", input, " + ", place, ")"));
    return str("inputs.", name, ".at[i]");
  };
  // Neighbouring results take neighbours of an input per channel.
  const auto has_rows = [&](std::string_view element) {
    return element == "column" || epilogue.has_channel_rows;
  };
  const auto channel_of_pack = [&](const std::string& element) {
    return element == "column" ? std::string("pack.column")
                               : str("([&](Index column) { return ", element, "; })(pack.column)");
  };
  // With a bias per column, neighbouring results take neighbours of the bias.
  if (epilogue.residual >= 0) read("residual", epilogue.residual, "pack.place");
  if (epilogue.bias >= 0 && has_rows(epilogue.bias_element))
    sums += str("y += load(", read("bias", epilogue.bias, channel_of_pack(epilogue.bias_element)),
                ");\n");
  else if (epilogue.bias >= 0)
    sums +=
        str("if (i < pack.count) y += load(in", epilogue.bias, "[", epilogue.bias_element, "]);\n");
  if (epilogue.residual >= 0) sums += "y += load(inputs.residual.at[i]);\n";
  const FusedProgram& program = epilogue.program;
  // Channels-last, the neighbours of a pack are channels of one pixel. They are also neighbours in
  // an input that is repeated over images.
  const bool is_linear = args.outputs[0].type.format == TensorFormat::kLINEAR;
  const int row_axes = is_linear ? epilogue.row_axes : args.outputs[0].max.rank() - 1;
  for (int i = 0; i < program.inputs(); ++i) {
    const auto of = static_cast<FusedPlace>(program.places[i]);
    if (of == FusedPlace::kProduct) {
      elements += str("const auto x", i + 1, " = pack.sums[WarpSums<C>::kMatrixSums + i];\n");
      continue;
    }
    const int input = first_program_input(args, program) + i;
    const std::string name = str("x", i + 1);
    std::string element;
    if (of == FusedPlace::kElement)
      element = read(name, input, "pack.place");
    else if (of == FusedPlace::kRepeated && repeats_whole_axes(args, input, row_axes))
      element = read(name, input, repeated_place(source, args, input, "pack.place", row_stride));
    else if (of == FusedPlace::kRepeated)
      element = str("in", input, "[",
                    repeated_place(source, args, input, "pack.place + i", row_stride), "]");
    else if (of == FusedPlace::kChannel && has_rows(epilogue.channel_element))
      element = read(name, input, channel_of_pack(epilogue.channel_element));
    else if (of == FusedPlace::kChannel)
      element = str("in", input, "[i < pack.count ? ", epilogue.channel_element, " : 0]");
    else
      element = str("in", input, "[0]");
    elements += str("const auto ", name, " = load(", element, ");\n");
  }
  return {"[](const ProductTask&) { return 0; }",
          function("const ProductTask& task, const auto& pack, const auto& behind", inputs.write()),
          write_make(args, epilogue, batch_statements(epilogue, of_batch), sums, elements)};
}

ResultProgram write_packed_results(const KernelArgs& args, const ProductEpilogue& epilogue,
                                   std::string_view of_batch, std::string_view column_count) {
  ReturnedMembers columns, inputs;
  std::string sums, elements;
  // Reads the value of an input that has one per row or column. Returns an expression for it.
  const auto read = [&](const std::string& name, int input, const std::string& place) {
    std::string value = str("load(in", input, "[", place, "])");
    if (place.find("column") == std::string::npos) return value;
    const std::string_view type = register_type(args.inputs[input].type.dtype);
    columns.add(
        str("ColumnValues<C, ", type, ">"), name,
        str("{[&](Index column) { return ", value, "; }, task.first_column, ", column_count, "}"));
    inputs.add(str("Pack<", type, ", 2>"), name, str("columns.", name, ".at(warp_n, pair)"));
    return str("inputs.columns.", name, ".at[i]");
  };
  if (epilogue.bias >= 0)
    sums += str("y += ", read("bias", epilogue.bias, epilogue.bias_element), ";\n");
  if (epilogue.residual >= 0) sums += "y += load(inputs.behind.at[i]);\n";
  const FusedProgram& program = epilogue.program;
  for (int i = 0; i < program.inputs(); ++i) {
    const auto place = static_cast<FusedPlace>(program.places[i]);
    const int input = first_program_input(args, program) + i;
    const std::string name = str("x", i + 1);
    elements += str("const auto ", name, " = ",
                    place == FusedPlace::kElement   ? std::string("load(inputs.behind.at[i])")
                    : place == FusedPlace::kChannel ? read(name, input, epilogue.channel_element)
                                                    : str("load(in", input, "[0])"),
                    ";\n");
  }
  const std::string batch = batch_statements(epilogue, of_batch);
  return {function("const ProductTask& task", batch + columns.write()),
          function("const auto& columns, int warp_n, int pair", inputs.write()),
          write_make(args, epilogue, batch, sums, elements)};
}

}  // namespace opwright::gpu
