// For every processor.
#include "kernels.hpp"

namespace baseline {
#include "rank_one.hpp"
const Kernels& get() { return kernels; }
}  // namespace baseline
