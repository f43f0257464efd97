// Stencils with each border mode, for isp_times.py. Each output is a weighted sum over a square window.
#define CLAMP 0
#define MIRROR 1
#define REPEAT 2
#define CONSTANT 3

template <int MODE>
__device__ __forceinline__ int inside(int x, int size) {
  if (MODE == CLAMP) return min(max(x, 0), size - 1);
  if (MODE == MIRROR) {
    if (x < 0) x = -x - 1;
    if (x >= size) x = 2 * size - x - 1;
    return min(max(x, 0), size - 1);
  }
  if (MODE == REPEAT) {
    while (x < 0) x += size;
    while (x >= size) x -= size;
  }
  return x;
}

template <int MODE>
__device__ __forceinline__ float pixel(const float *in, int x, int y, int width, int height) {
  if (MODE != CONSTANT) return in[inside<MODE>(y, height) * width + inside<MODE>(x, width)];
  return x >= 0 && x < width && y >= 0 && y < height ? in[y * width + x] : 0.25f;
}

template <int MODE, int RADIUS>
__device__ __forceinline__ void sum(const float *in, float *out, int width, int height) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x >= width || y >= height) return;
  float total = 0;
  for (int dy = -RADIUS; dy <= RADIUS; dy++)
    for (int dx = -RADIUS; dx <= RADIUS; dx++)
      total += pixel<MODE>(in, x + dx, y + dy, width, height) * (1.0f / (1 + dx * dx + dy * dy));
  out[y * width + x] = total;
}

template <int MODE, int RADIUS>
__device__ __forceinline__ void bilateral(const float *in, float *out, int width, int height) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x >= width || y >= height) return;
  float own = in[y * width + x], total = 0, weights = 0;
  for (int dy = -RADIUS; dy <= RADIUS; dy++)
    for (int dx = -RADIUS; dx <= RADIUS; dx++) {
      float other = pixel<MODE>(in, x + dx, y + dy, width, height), difference = other - own;
      float weight = (1.0f / (1 + dx * dx + dy * dy)) * __expf(-3 * difference * difference);
      weights += weight;
      total += weight * other;
    }
  out[y * width + x] = total / weights;
}

#define KERNEL(name, body)                                                                  \
  extern "C" __global__ void name(const float *in, float *out, int width, int height) {     \
    body(in, out, width, height);                                                           \
  }
#define MODES(kind, size, body, radius)                 \
  KERNEL(kind##size##_clamp, (body<CLAMP, radius>))     \
  KERNEL(kind##size##_mirror, (body<MIRROR, radius>))   \
  KERNEL(kind##size##_repeat, (body<REPEAT, radius>))   \
  KERNEL(kind##size##_constant, (body<CONSTANT, radius>))

MODES(sum, 3, sum, 1)
MODES(sum, 5, sum, 2)
MODES(sum, 13, sum, 6)
MODES(bilateral, 5, bilateral, 2)
MODES(bilateral, 13, bilateral, 6)
