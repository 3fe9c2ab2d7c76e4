// The functions that Python calls. The instruction set is chosen when the program runs.
#include <cstring>

#include "kernels.hpp"

namespace baseline { const Kernels& get(); }
namespace avx2 { const Kernels& get(); }
namespace avx512 { const Kernels& get(); }

namespace {

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
const char* best() {
  __builtin_cpu_init();
  const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool has_avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
                          __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw");
  return has_avx2 && has_avx512 ? "avx512" : has_avx2 ? "avx2" : "baseline";
}

const Kernels& named(const char* name) {
  if (!std::strcmp(name, "avx512")) return avx512::get();
  if (!std::strcmp(name, "avx2")) return avx2::get();
  return baseline::get();
}
#else
const char* best() { return "baseline"; }
const Kernels& named(const char*) { return baseline::get(); }
#endif

const Kernels* chosen = nullptr;

}  // namespace

extern "C" {

// The best instruction set that this processor has.
const char* factorizer_best_instructions() { return best(); }

// Use an instruction set, which must not be better than the best.
void factorizer_use_instructions(const char* name) { chosen = &named(name); }

void factorizer_forward_float(const Cut* cut, const float* z, const float* g0, const float* weight,
                              const float* bias, float* y) {
  chosen->forward_float(*cut, z, g0, weight, bias, y);
}

void factorizer_forward_double(const Cut* cut, const double* z, const double* g0,
                               const double* weight, const double* bias, double* y) {
  chosen->forward_double(*cut, z, g0, weight, bias, y);
}

void factorizer_backward_float(const Cut* cut, const float* z, const float* g0, const float* weight,
                               const float* dy, float* dz, float* dweight) {
  chosen->backward_float(*cut, z, g0, weight, dy, dz, dweight);
}

void factorizer_backward_double(const Cut* cut, const double* z, const double* g0,
                                const double* weight, const double* dy, double* dz,
                                double* dweight) {
  chosen->backward_double(*cut, z, g0, weight, dy, dz, dweight);
}

}  // extern "C"
