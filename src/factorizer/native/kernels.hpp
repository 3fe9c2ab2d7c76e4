// What every instruction set provides: the same four functions.
#pragma once
#include <cstdint>
#include <cstdlib>

struct Cut {  // how a map (B, H, W, D, C) is cut into windows, and what is computed
  int64_t batch, size[3], window[3];
  int64_t channels, head_dim, num_iters, grids;
  const int64_t* shifts;  // (grids, 3): by how many voxels the map is rolled along each axis
  int64_t threads;
};

struct Kernels {
  void (*forward_float)(const Cut&, const float*, const float*, const float*, const float*, float*);
  void (*forward_double)(const Cut&, const double*, const double*, const double*, const double*,
                         double*);
  void (*backward_float)(const Cut&, const float*, const float*, const float*, const float*, float*,
                         float*);
  void (*backward_double)(const Cut&, const double*, const double*, const double*, const double*,
                          double*, double*);
};
