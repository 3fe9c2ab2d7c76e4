// Rank-one NMF of every head of every window of a map, and its out-projection (Eq. 6 with R = 1).
//
// For a window X (N voxels x C channels after ReLU), a head X_h (N x E) of it, and the initial
// factor g0 (N):
//
//     A = X_h^T X_h / trace,  v_0 = X_h^T g0,  v_t = A v_(t-1),  f = v_(T-1) / |v_(T-1)|   (Eq. 14)
//     g = X_h f,  m = W_h^T f,  y += share (sum over heads of g m^T + bias)
//
// W_h (E x C) are the rows of the transposed out-projection that belong to the head. A window is
// read once, worked on in the cache, and written once. The backward pass computes all of this
// again, so nothing is kept between the passes.
//
// This file is compiled once for each instruction set, inside a namespace of its own. It uses no
// C++ library, so that no function of one instruction set can reach a processor without it. Each of
// those files includes kernels.hpp first.

constexpr int64_t MOST_CHUNKS = 64;          // of windows, worked on one by one by the threads
constexpr int64_t MOST_PARTIALS = 1 << 22;   // numbers in the sums of all chunks together
constexpr int64_t LEAST_ELEMENTS = 1 << 15;  // of a map that is worth several threads
constexpr int RESCALE_EVERY = 4;             // steps, as in nmf.py
constexpr int LANES = 16;                    // outputs that are computed together

template <typename T>
struct Limits {
  static constexpr T tiny = T(1e-35);       // the least trace, as in updates.py
  static constexpr T shortest = T(1e-17);   // the least length, as in nmf.py
};

// N numbers that are computed together. The compiler maps them to the registers of the processor.
template <typename T, int N>
struct Lanes {
  typedef T Vector __attribute__((vector_size(N * sizeof(T))));
  static inline Vector load(const T* from) {
    Vector vector;
    __builtin_memcpy(&vector, from, sizeof vector);
    return vector;
  }
  static inline void store(T* to, Vector vector) { __builtin_memcpy(to, &vector, sizeof vector); }
  static inline T add_up(Vector vector) {  // halves onto halves, which takes few steps
    if constexpr (N == 1) {
      return vector[0];
    } else {
      typedef Lanes<T, N / 2> Half;
      T parts[N];
      store(parts, vector);
      return Half::add_up(Half::load(parts) + Half::load(parts + N / 2));
    }
  }
};

// c (rows x cols) = a (rows x depth, with any strides) times b (depth x cols), for a few rows and
// for COLS columns. `init` is added to every row, unless it is null.
template <typename T, int ROWS, int COLS>
static inline void multiply_tile(T* c, int64_t ldc, const T* a, int64_t row_stride,
                                 int64_t depth_stride, const T* b, int64_t ldb, int64_t depth,
                                 const T* init) {
  typedef Lanes<T, COLS> L;
  typename L::Vector sum[ROWS];
  const typename L::Vector zero = {};
  for (int r = 0; r < ROWS; ++r) sum[r] = init ? L::load(init) : zero;
  for (int64_t k = 0; k < depth; ++k) {
    const typename L::Vector row = L::load(b + k * ldb);
    for (int r = 0; r < ROWS; ++r) sum[r] += a[r * row_stride + k * depth_stride] * row;
  }
  for (int r = 0; r < ROWS; ++r) L::store(c + r * ldc, sum[r]);
}

template <typename T, int COLS>
static inline void multiply_columns(T* c, int64_t ldc, const T* a, int64_t row_stride,
                                    int64_t depth_stride, const T* b, int64_t ldb, int64_t rows,
                                    int64_t depth, const T* init) {
  int64_t r = 0;
  for (; r + 4 <= rows; r += 4)
    multiply_tile<T, 4, COLS>(c + r * ldc, ldc, a + r * row_stride, row_stride, depth_stride, b,
                              ldb, depth, init);
  for (; r < rows; ++r)
    multiply_tile<T, 1, COLS>(c + r * ldc, ldc, a + r * row_stride, row_stride, depth_stride, b,
                              ldb, depth, init);
}

// c (rows x cols) = a b + init.
template <typename T>
static inline void multiply(T* c, int64_t ldc, const T* a, int64_t row_stride,
                            int64_t depth_stride, const T* b, int64_t ldb, int64_t rows,
                            int64_t cols, int64_t depth, const T* init) {
  int64_t v = 0;
  for (; v + LANES <= cols; v += LANES)
    multiply_columns<T, LANES>(c + v, ldc, a, row_stride, depth_stride, b + v, ldb, rows, depth,
                               init ? init + v : nullptr);
  for (; v + 4 <= cols; v += 4)
    multiply_columns<T, 4>(c + v, ldc, a, row_stride, depth_stride, b + v, ldb, rows, depth,
                           init ? init + v : nullptr);
  for (; v < cols; ++v)
    multiply_columns<T, 1>(c + v, ldc, a, row_stride, depth_stride, b + v, ldb, rows, depth,
                           init ? init + v : nullptr);
}

template <typename T>
static inline T dot(const T* a, const T* b, int64_t count) {
  typedef Lanes<T, 8> L;
  typename L::Vector sum = {};
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) sum += L::load(a + i) * L::load(b + i);
  T total = L::add_up(sum);
  for (; i < count; ++i) total += a[i] * b[i];
  return total;
}

// v / |v| in place, and |v|.
template <typename T>
static inline T normalize(T* v, int64_t count) {
  T square = 0;
  for (int64_t i = 0; i < count; ++i) square += v[i] * v[i];
  T length = T(__builtin_sqrt(double(square)));
  if (length < Limits<T>::shortest) length = Limits<T>::shortest;
  for (int64_t i = 0; i < count; ++i) v[i] /= length;
  return length;
}

// One window and everything that is computed from it. E is the size of a head, or 0 for any size.
template <typename T, int E>
struct Window {
  int64_t voxels, channels, heads, head_dim, num_iters;
  T *x, *g, *gram, *scale, *steps, *lengths, *f, *m;       // forward
  T *dy, *dg, *dm, *df, *db, *sum;                         // backward
  T* memory;

  static int64_t voxels_of(const Cut& cut) { return cut.window[0] * cut.window[1] * cut.window[2]; }

  Window(const Cut& cut, bool backward)
      : voxels(voxels_of(cut)),
        channels(cut.channels),
        heads(cut.channels / cut.head_dim),
        head_dim(cut.head_dim),
        num_iters(cut.num_iters) {
    const int64_t map = voxels * channels, factor = voxels * heads, square = channels * head_dim;
    const int64_t forward_size = map + factor + square + heads + num_iters * channels +
                                 (num_iters + 1) * heads + channels + heads * channels;
    const int64_t backward_size = map + factor + heads * channels + 2 * channels + square;
    memory = static_cast<T*>(
        std::malloc(sizeof(T) * size_t(forward_size + (backward ? backward_size : 0))));
    T* next = memory;
    auto take = [&next](int64_t count) { T* start = next; next += count; return start; };
    x = take(map), g = take(factor), gram = take(square), scale = take(heads);
    steps = take(num_iters * channels), lengths = take((num_iters + 1) * heads);
    f = take(channels), m = take(heads * channels);
    if (!backward) return;
    dy = take(map), dg = take(factor), dm = take(heads * channels);
    df = take(channels), db = take(channels), sum = take(square);
  }
  ~Window() { std::free(memory); }
  Window(const Window&) = delete;
  Window& operator=(const Window&) = delete;

  int64_t size() const { return E ? E : head_dim; }

  // The voxels of the window after ReLU, which lets NaN pass.
  void read(const T* map, const int64_t* places) {
    for (int64_t n = 0; n < voxels; ++n) {
      const T* from = map + places[n] * channels;
      T* to = x + n * channels;
#pragma omp simd
      for (int64_t c = 0; c < channels; ++c) to[c] = from[c] < T(0) ? T(0) : from[c];
    }
  }

  // A = X^T X of every head with unit trace, and v_0 = X^T g0.
  void correlate(const T* g0) {
    const int64_t e = size();
    for (int64_t h = 0; h < heads; ++h) {
      T* own = gram + h * e * e;
      correlate_head(h, g0, own, steps + h * e);
      T trace = 0;
      for (int64_t i = 0; i < e; ++i) trace += own[i * e + i];
      scale[h] = T(1) / (trace < Limits<T>::tiny ? Limits<T>::tiny : trace);
      for (int64_t i = 0; i < e * e; ++i) own[i] *= scale[h];
    }
  }

  void correlate_head(int64_t h, const T* g0, T* matrix, T* start) {
    const int64_t e = size();
    if constexpr (E > 0) {
      typedef Lanes<T, E> L;
      typename L::Vector rows[E] = {}, total = {};
      for (int64_t n = 0; n < voxels; ++n) {
        const T* voxel = x + n * channels + h * E;
        const typename L::Vector all = L::load(voxel);
        for (int i = 0; i < E; ++i) rows[i] += voxel[i] * all;
        total += g0[n] * all;
      }
      for (int i = 0; i < E; ++i) L::store(matrix + i * E, rows[i]);
      L::store(start, total);
    } else {
      for (int64_t i = 0; i < e * e; ++i) matrix[i] = 0;
      for (int64_t i = 0; i < e; ++i) start[i] = 0;
      for (int64_t n = 0; n < voxels; ++n) {
        const T* voxel = x + n * channels + h * e;
        for (int64_t i = 0; i < e; ++i) {
          for (int64_t j = 0; j < e; ++j) matrix[i * e + j] += voxel[i] * voxel[j];
          start[i] += voxel[i] * g0[n];
        }
      }
    }
  }

  static bool rescales(int64_t t, int64_t num_iters) {
    return t % RESCALE_EVERY == 0 && t < num_iters - 1;
  }

  // A v for a symmetric matrix, as the sum of its rows times the numbers of v.
  void apply_gram(const T* matrix, const T* v, T* result) const {
    const int64_t e = size();
    if constexpr (E > 0) {
      typedef Lanes<T, E> L;
      typename L::Vector total = {};
      for (int i = 0; i < E; ++i) total += v[i] * L::load(matrix + i * E);
      L::store(result, total);
    } else {
      for (int64_t i = 0; i < e; ++i) result[i] = dot(matrix + i * e, v, e);
    }
  }

  // f of every head: T - 1 power steps on A. The steps are kept for the backward pass.
  void iterate() {
    const int64_t e = size();
    for (int64_t h = 0; h < heads; ++h) {
      T* own_lengths = lengths + h * (num_iters + 1);
      own_lengths[0] = normalize(steps + h * e, e);
      for (int64_t t = 1; t < num_iters; ++t) {
        T* v = steps + t * channels + h * e;
        apply_gram(gram + h * e * e, v - channels, v);
        own_lengths[t] = rescales(t, num_iters) ? normalize(v, e) : T(1);
      }
      T* own = f + h * e;
      const T* last = steps + (num_iters - 1) * channels + h * e;
      for (int64_t i = 0; i < e; ++i) own[i] = last[i];
      own_lengths[num_iters] = normalize(own, e);
    }
  }

  // g = X f of every head, and m = W^T f.
  void project(const T* weight) {
    const int64_t e = size();
    for (int64_t n = 0; n < voxels; ++n) {
      const T* row = x + n * channels;
      for (int64_t h = 0; h < heads; ++h) {
        if constexpr (E > 0) {
          typedef Lanes<T, E> L;
          g[n * heads + h] = L::add_up(L::load(row + h * E) * L::load(f + h * E));
        } else {
          g[n * heads + h] = dot(row + h * e, f + h * e, e);
        }
      }
    }
    for (int64_t h = 0; h < heads; ++h)
      multiply(m + h * channels, channels, f + h * e, int64_t(0), int64_t(1),
               weight + h * e * channels, channels, int64_t(1), channels, e,
               static_cast<const T*>(nullptr));
  }

  void factorize(const T* map, const int64_t* places, const T* g0, const T* weight) {
    read(map, places);
    correlate(g0);
    iterate();
    project(weight);
  }

  // y += share (g m^T + bias) at the places of the window.
  void write(T* y, const int64_t* places, const T* bias, T share) {
    T* result = x;  // which is not needed any more
    multiply(result, channels, g, heads, int64_t(1), m, channels, voxels, channels, heads, bias);
    for (int64_t n = 0; n < voxels; ++n) {
      const T* from = result + n * channels;
      T* to = y + places[n] * channels;
#pragma omp simd
      for (int64_t c = 0; c < channels; ++c) to[c] += share * from[c];
    }
  }

  // Gradients of the window's voxels before ReLU, added to dz, and of the weight, added to dweight.
  void differentiate(const T* upstream, const int64_t* places, const T* g0, const T* weight,
                     T share, T* dz, T* dweight) {
    const int64_t e = size();
    for (int64_t n = 0; n < voxels; ++n) {
      const T* from = upstream + places[n] * channels;
#pragma omp simd
      for (int64_t c = 0; c < channels; ++c) dy[n * channels + c] = share * from[c];
    }
    // y = g m^T: dg = dy m, dm = g^T dy
    for (int64_t n = 0; n < voxels; ++n)
      for (int64_t h = 0; h < heads; ++h)
        dg[n * heads + h] = dot(dy + n * channels, m + h * channels, channels);
    multiply(dm, channels, g, int64_t(1), heads, dy, channels, heads, channels, voxels,
             static_cast<const T*>(nullptr));
    for (int64_t h = 0; h < heads; ++h) {
      const T* own_dm = dm + h * channels;
      for (int64_t i = 0; i < e; ++i) {  // m = W^T f
        const int64_t row = h * e + i;
        const T factor = f[row];
        T* to = dweight + row * channels;
#pragma omp simd
        for (int64_t c = 0; c < channels; ++c) to[c] += factor * own_dm[c];
        df[row] = dot(own_dm, weight + row * channels, channels);
      }
      collect_head(h);
      unroll(h);
    }
    scatter(dz, places, g0);
  }

  // g = X f: df of a head += X^T dg
  void collect_head(int64_t h) {
    const int64_t e = size();
    if constexpr (E > 0) {
      typedef Lanes<T, E> L;
      typename L::Vector total = L::load(df + h * E);
      for (int64_t n = 0; n < voxels; ++n)
        total += dg[n * heads + h] * L::load(x + n * channels + h * E);
      L::store(df + h * E, total);
    } else {
      for (int64_t n = 0; n < voxels; ++n)
        for (int64_t i = 0; i < e; ++i)
          df[h * e + i] += dg[n * heads + h] * x[n * channels + h * e + i];
    }
  }

  // From df of a head back through its power steps: db of v_0, and dA + dA^T times the scale.
  void unroll(int64_t h) {
    const int64_t e = size();
    const T* own_f = f + h * e;
    const T* own_lengths = lengths + h * (num_iters + 1);
    T *dv = db + h * e, *own_sum = sum + h * e * e, *own_df = df + h * e;
    T along = 0;
    for (int64_t i = 0; i < e; ++i) along += own_f[i] * own_df[i];
    for (int64_t i = 0; i < e; ++i)
      dv[i] = (own_df[i] - own_f[i] * along) / own_lengths[num_iters];
    for (int64_t i = 0; i < e * e; ++i) own_sum[i] = 0;
    for (int64_t t = num_iters - 1; t >= 1; --t) {
      const T* before = steps + (t - 1) * channels + h * e;
      for (int64_t i = 0; i < e; ++i) dv[i] /= own_lengths[t];
      add_products(own_sum, dv, before);
      apply_gram(gram + h * e * e, dv, own_df);
      for (int64_t i = 0; i < e; ++i) dv[i] = own_df[i];
    }
    for (int64_t i = 0; i < e; ++i) dv[i] /= own_lengths[0];
    for (int64_t i = 0; i < e * e; ++i) own_sum[i] *= scale[h];
  }

  // sum += u v^T + v u^T
  void add_products(T* own_sum, const T* u, const T* v) const {
    const int64_t e = size();
    if constexpr (E > 0) {
      typedef Lanes<T, E> L;
      const typename L::Vector all_u = L::load(u), all_v = L::load(v);
      for (int i = 0; i < E; ++i)
        L::store(own_sum + i * E, L::load(own_sum + i * E) + u[i] * all_v + v[i] * all_u);
    } else {
      for (int64_t i = 0; i < e; ++i)
        for (int64_t j = 0; j < e; ++j) own_sum[i * e + j] += u[i] * v[j] + v[i] * u[j];
    }
  }

  // dX = dg f^T + g0 db^T + X (dA + dA^T), where ReLU let the voxel pass.
  void scatter(T* dz, const int64_t* places, const T* g0) {
    const int64_t e = size();
    for (int64_t n = 0; n < voxels; ++n) {
      T* to = dz + places[n] * channels;
      const T* row = x + n * channels;
      for (int64_t h = 0; h < heads; ++h) {
        const T* own_sum = sum + h * e * e;
        const T factor = dg[n * heads + h];
        if constexpr (E > 0) {
          typedef Lanes<T, E> L;
          typename L::Vector total = factor * L::load(f + h * E) + g0[n] * L::load(db + h * E);
          for (int j = 0; j < E; ++j) total += row[h * E + j] * L::load(own_sum + j * E);
          const typename L::Vector zero = {};
          total = L::load(row + h * E) == zero ? zero : total;
          L::store(to + h * E, L::load(to + h * E) + total);
        } else {
          for (int64_t i = 0; i < e; ++i) {
            T total = factor * f[h * e + i] + g0[n] * db[h * e + i];
            for (int64_t j = 0; j < e; ++j) total += row[h * e + j] * own_sum[j * e + i];
            to[h * e + i] += row[h * e + i] == T(0) ? T(0) : total;
          }
        }
      }
    }
  }
};

static inline int64_t count_windows(const Cut& cut) {
  int64_t windows = cut.batch;
  for (int a = 0; a < 3; ++a) windows *= cut.size[a] / cut.window[a];
  return windows;
}

// The places along an axis of the voxels of a window that starts at `start`, each times `step`.
static inline void find_line(int64_t start, int64_t count, int64_t size, int64_t step,
                             int64_t* places) {
  int64_t place = start % size;
  if (place < 0) place += size;
  for (int64_t i = 0; i < count; ++i) {
    places[i] = place * step;
    place = place + 1 == size ? 0 : place + 1;
  }
}

// The numbers of the voxels of a window of a grid, in the order of the window's voxels. `lines` has
// room for the sum of the window's sides.
static inline void find_places(const Cut& cut, const int64_t* shift, int64_t window, int64_t* lines,
                               int64_t* places) {
  const int64_t steps[3] = {cut.size[1] * cut.size[2], cut.size[2], 1};
  int64_t* line[3] = {lines, lines + cut.window[0], lines + cut.window[0] + cut.window[1]};
  for (int a = 2; a >= 0; --a) {
    const int64_t count = cut.size[a] / cut.window[a];
    find_line(window % count * cut.window[a] - shift[a], cut.window[a], cut.size[a], steps[a],
              line[a]);
    window /= count;
  }
  const int64_t first = window * cut.size[0] * steps[0];
  int64_t n = 0;
  for (int64_t i = 0; i < cut.window[0]; ++i)
    for (int64_t j = 0; j < cut.window[1]; ++j)
      for (int64_t k = 0; k < cut.window[2]; ++k)
        places[n++] = first + line[0][i] + line[1][j] + line[2][k];
}

struct Places {  // room for the numbers of the voxels of a window
  int64_t *voxels, *lines;
  explicit Places(const Cut& cut) {
    const int64_t sides = cut.window[0] + cut.window[1] + cut.window[2];
    const int64_t count = cut.window[0] * cut.window[1] * cut.window[2];
    voxels = static_cast<int64_t*>(std::malloc(sizeof(int64_t) * size_t(count + sides)));
    lines = voxels + count;
  }
  ~Places() { std::free(voxels); }
  Places(const Places&) = delete;
  Places& operator=(const Places&) = delete;
};

// How many parts the windows are worked on in. It does not depend on the number of threads, so
// that sums over parts do not either.
static inline int64_t count_chunks(const Cut& cut) {
  const int64_t windows = count_windows(cut), weights = cut.channels * cut.channels;
  int64_t most = MOST_PARTIALS / weights;
  most = most < 4 ? 4 : most > MOST_CHUNKS ? MOST_CHUNKS : most;
  return windows < most ? windows : most;
}

static inline int count_threads(const Cut& cut) {
  const int64_t voxels = cut.batch * cut.size[0] * cut.size[1] * cut.size[2];
  return voxels * cut.channels < LEAST_ELEMENTS ? 1 : int(cut.threads);
}

template <typename T, int E>
static void forward_heads(const Cut& cut, const T* z, const T* g0, const T* weight, const T* bias,
                          T* y) {
  const int64_t windows = count_windows(cut), chunks = count_chunks(cut);
  const T share = T(1) / T(cut.grids);
  for (int64_t grid = 0; grid < cut.grids; ++grid) {
#pragma omp parallel for num_threads(count_threads(cut)) schedule(static)
    for (int64_t chunk = 0; chunk < chunks; ++chunk) {
      Window<T, E> window(cut, false);
      Places places(cut);
      for (int64_t w = windows * chunk / chunks; w < windows * (chunk + 1) / chunks; ++w) {
        find_places(cut, cut.shifts + 3 * grid, w, places.lines, places.voxels);
        window.factorize(z, places.voxels, g0, weight);
        window.write(y, places.voxels, bias, share);
      }
    }
  }
}

template <typename T, int E>
static void backward_heads(const Cut& cut, const T* z, const T* g0, const T* weight, const T* dy,
                           T* dz, T* dweight) {
  const int64_t windows = count_windows(cut), chunks = count_chunks(cut);
  const int64_t weights = cut.channels * cut.channels;
  const T share = T(1) / T(cut.grids);
  T* partial = static_cast<T*>(std::calloc(size_t(chunks * weights), sizeof(T)));
  for (int64_t grid = 0; grid < cut.grids; ++grid) {
#pragma omp parallel for num_threads(count_threads(cut)) schedule(static)
    for (int64_t chunk = 0; chunk < chunks; ++chunk) {
      Window<T, E> window(cut, true);
      Places places(cut);
      for (int64_t w = windows * chunk / chunks; w < windows * (chunk + 1) / chunks; ++w) {
        find_places(cut, cut.shifts + 3 * grid, w, places.lines, places.voxels);
        window.factorize(z, places.voxels, g0, weight);
        window.differentiate(dy, places.voxels, g0, weight, share, dz, partial + chunk * weights);
      }
    }
  }
  for (int64_t chunk = 0; chunk < chunks; ++chunk)
    for (int64_t i = 0; i < weights; ++i) dweight[i] += partial[chunk * weights + i];
  std::free(partial);
}

template <typename T>
static void forward(const Cut& cut, const T* z, const T* g0, const T* weight, const T* bias,
                    T* y) {
  switch (cut.head_dim) {
    case 4: return forward_heads<T, 4>(cut, z, g0, weight, bias, y);
    case 8: return forward_heads<T, 8>(cut, z, g0, weight, bias, y);
    case 16: return forward_heads<T, 16>(cut, z, g0, weight, bias, y);
    default: return forward_heads<T, 0>(cut, z, g0, weight, bias, y);
  }
}

template <typename T>
static void backward(const Cut& cut, const T* z, const T* g0, const T* weight, const T* dy, T* dz,
                     T* dweight) {
  switch (cut.head_dim) {
    case 4: return backward_heads<T, 4>(cut, z, g0, weight, dy, dz, dweight);
    case 8: return backward_heads<T, 8>(cut, z, g0, weight, dy, dz, dweight);
    case 16: return backward_heads<T, 16>(cut, z, g0, weight, dy, dz, dweight);
    default: return backward_heads<T, 0>(cut, z, g0, weight, dy, dz, dweight);
  }
}

const Kernels kernels = {forward<float>, forward<double>, backward<float>, backward<double>};
