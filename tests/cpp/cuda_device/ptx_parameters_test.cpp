#include "backend/cuda/ptx_parameters.h"

#include <gtest/gtest.h>

#include <string>

namespace opwright::cuda {
namespace {

/// A letter for each parameter: p a pointer, v a value, in capitals where it is read.
std::string letters(std::string_view ptx, std::string_view kernel) {
  const auto parameters = ptx_parameters(ptx, kernel);
  if (!parameters) return "none";
  std::string text;
  for (const PtxParameter& parameter : *parameters)
    text +=
        parameter.is_pointer ? (parameter.is_read ? 'P' : 'p') : (parameter.is_read ? 'V' : 'v');
  return text;
}

TEST(PtxParametersTest, TellsWhatAKernelReads) {
  const std::string ptx = R"(
.version 9.4
.target sm_90a
.address_size 64
	// .globl	add                     // -- Begin function add
.visible .entry add(
	.param .u64 .ptr .global .align 1 add_param_0,
	.param .u32 add_param_1,
	.param .align 8 .b8 add_param_2[24],
	.param .b64 add_param_3,  // a comment with a comma, and { a brace
	.param .f64 add_param_4 , .param .u64 add_param_10
)
.reqntid 128
{
	.reg .b64 %rd<8>;
	/* st.global [add_param_3] } */
	ld.param.b64 %rd5, [add_param_0];
	{ mov.u32 %r6, %ctaid.x; }
	ld.param.b32 %r5, [add_param_1+0];
	ld.param.b64 %rd6, [add_param_10]; // [add_param_4]
	ret;
}
.visible .entry add_more(.param .u64 add_more_param_0) { ld.param.u64 %rd1, [add_more_param_0]; }
.entry no_parameters { ret; }
.entry empty ( ) { ret; }
.section .debug_info { .b8 1 // add_param_3
}
)";
  EXPECT_EQ(letters(ptx, "add"), "PVvpvP");
  EXPECT_EQ(letters(ptx, "add_more"), "P");
  EXPECT_EQ(letters(ptx, "no_parameters"), "");
  EXPECT_EQ(letters(ptx, "empty"), "");
  EXPECT_EQ(letters(ptx, "ad"), "none");
  EXPECT_EQ(letters(ptx, ""), "none");
}

TEST(PtxParametersTest, AnyTextEndsWell) {
  const std::string whole = ".entry f(.param .u64 a, .param .u64 b) { /* x */ ld [a]; // c\n }";
  EXPECT_EQ(letters(whole, "f"), "Pp");
  for (size_t size = 0; size < whole.size(); ++size)
    EXPECT_EQ(letters(whole.substr(0, size), "f"), "none") << size;
  EXPECT_EQ(letters(".entry f(.param) { }", "f"), "none");
  EXPECT_EQ(letters(".entry f(,,,) { }", "f"), "");
  EXPECT_EQ(letters(".entry f { ( }", "f"), "");
  EXPECT_EQ(letters(".entry f( { ) }", "f"), "none");
  EXPECT_EQ(letters(std::string("\177ELF\0.entry f(\0", 16), "f"), "none");
}

}  // namespace
}  // namespace opwright::cuda
