// A build without OpenBLAS has no LAPACK, and says so.
#ifdef TESSERACK_CPU_NO_OPENBLAS
#include <tesserack/backend.hpp>

namespace tesserack::cpu {
namespace {

void missing(const backend::Call& call) {
  backend::fail(TS_ERROR,
                "%s: expected LAPACK, which this build of the cpu backend is without; install scipy-openblas32 and "
                "build it again",
                call.op());
}

constexpr uint64_t kAll = ~uint64_t{0};

} // namespace

TS_KERNEL_AS("lapack_lu", missing, kAll, TS_L_STRIDED);
TS_KERNEL_AS("lapack_lu_solve", missing, kAll, TS_L_STRIDED);
TS_KERNEL_AS("lapack_permutation", missing, kAll, TS_L_STRIDED);
TS_KERNEL_AS("lapack_cholesky", missing, kAll, TS_L_STRIDED);
TS_KERNEL_AS("lapack_cholesky_solve", missing, kAll, TS_L_STRIDED);
TS_KERNEL_AS("lapack_ldl", missing, kAll, TS_L_STRIDED);
TS_KERNEL_AS("lapack_ldl_solve", missing, kAll, TS_L_STRIDED);
TS_KERNEL_AS("lapack_triangular_solve", missing, kAll, TS_L_STRIDED);
TS_KERNEL_AS("lapack_qr", missing, kAll, TS_L_STRIDED);
TS_KERNEL_AS("lapack_reflectors", missing, kAll, TS_L_STRIDED);
TS_KERNEL_AS("lapack_apply_reflectors", missing, kAll, TS_L_STRIDED);
TS_KERNEL_AS("lapack_least_squares", missing, kAll, TS_L_STRIDED);
TS_KERNEL_AS("lapack_svd", missing, kAll, TS_L_STRIDED);
TS_KERNEL_AS("lapack_eigh", missing, kAll, TS_L_STRIDED);
TS_KERNEL_AS("lapack_eig", missing, kAll, TS_L_STRIDED);

} // namespace tesserack::cpu
#endif
