// For x86-64 processors with AVX-512.
#include "kernels.hpp"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#pragma GCC target("avx2,fma,avx512f,avx512vl,avx512dq,avx512bw")
namespace avx512 {
#include "rank_one.hpp"
const Kernels& get() { return kernels; }
}  // namespace avx512
#endif
