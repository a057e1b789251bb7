// Operators by name, for C++ callers: ops::add(a, b). Trailing arguments take the schema's defaults. One line per
// operator (or overload) that other C++ code calls.
#pragma once
#include "dispatch/boxing.h"

namespace ts::ops {

// pointwise
inline const Op add("add"), sub("sub"), mul("mul"), div("div"), pow("pow"), neg("neg"), abs("abs"), sign("sign");
inline const Op exp("exp"), log("log"), sqrt("sqrt"), rsqrt("rsqrt"), reciprocal("reciprocal"), square("square");
inline const Op sigmoid("sigmoid"), tanh("tanh"), relu("relu"), floor("floor"), where("where.self");
inline const Op eq("eq"), ne("ne"), lt("lt"), le("le"), gt("gt"), ge("ge"), isnan("isnan");
inline const Op logical_not("logical_not"), logical_and("logical_and"), logical_or("logical_or");
inline const Op bitwise_and("bitwise_and"), bitwise_or("bitwise_or");
inline const Op maximum("maximum"), minimum("minimum"), clamp("clamp"), masked_fill("masked_fill");
inline const Op real("real"), imag("imag"), conj("conj"), conj_physical("conj_physical"), view_as_real("view_as_real"),
    view_as_complex("view_as_complex"), sgn("sgn"), complex("complex");
inline const Op add_("add_"), mul_("mul_"), div_("div_");

// copies and casts
inline const Op copy_("copy_"), to_dtype("to.dtype"), to_device("to.device"), contiguous("contiguous"), clone("clone");
// factories
inline const Op empty("empty"), zeros("zeros"), ones("ones"), full("full"), arange("arange.start_step");
inline const Op empty_like("empty_like"), zeros_like("zeros_like"), ones_like("ones_like"), full_like("full_like");
inline const Op fill_("fill_"), zero_("zero_");
inline const Op local_scalar("_local_scalar_dense"); // reads the element of a tensor on the host
// views
inline const Op view("view"), reshape("reshape"), transpose("transpose.int"), permute("permute"), expand("expand");
inline const Op squeeze("squeeze.dims"), unsqueeze("unsqueeze"), select("select.int"), slice("slice"), narrow("narrow");
inline const Op as_strided("as_strided"), flip("flip"), detach("detach"), unfold("unfold"), flatten("flatten"),
    diagonal("diagonal");
// joining and splitting
inline const Op cat("cat"), stack("stack"), split("split"), split_with_sizes("split.sizes"), unbind("unbind");
// reductions and scans
inline const Op sum("sum"), sum_dim("sum.dim"), mean("mean"), mean_dim("mean.dim"), prod("prod"),
    prod_dim("prod.dim_int");
inline const Op amax("amax"), amin("amin"), argmax("argmax"), argmin("argmin"), any("any"), all("all");
inline const Op max_dim("max.dim"), min_dim("min.dim"), logsumexp("logsumexp"), cumsum("cumsum"), cumprod("cumprod");
// indexing
inline const Op gather("gather"), scatter("scatter.src"), scatter_add("scatter_add"), index_select("index_select");
inline const Op index_add("index_add"), index("index"), index_put("index_put"), nonzero("nonzero"), sort("sort"),
    topk("topk");
// linear algebra
inline const Op matmul("matmul"), mm("mm"), bmm("bmm"), linear("linear"), addmm("addmm");
// Sums a gradient of a broadcast result back to the operand's sizes.
inline const Op sum_to_size("sum_to_size");

} // namespace ts::ops
