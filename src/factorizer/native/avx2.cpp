// For x86-64 processors with AVX2 and FMA.
#include "kernels.hpp"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#pragma GCC target("avx2,fma")
namespace avx2 {
#include "rank_one.hpp"
const Kernels& get() { return kernels; }
}  // namespace avx2
#endif
