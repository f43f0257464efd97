// Five-point diffusion with clamped borders. The border cases recompute the same row offsets in each arm, and the
// conductivity of a cell is read again after the neighbour's result has been stored.
extern "C" __global__ void diffuse(const float *in, const float *conductivity, float *out, int width, int height, float dt)
{
    const int x = blockIdx.x * blockDim.x + threadIdx.x;
    const int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height)
        return;
    const float here = in[y * width + x];
    float flux = 0.0f;
    if (x > 0)
        flux += (in[y * width + x - 1] - here) / conductivity[y * width + x - 1];
    if (x < width - 1)
        flux += (in[y * width + x + 1] - here) / conductivity[y * width + x + 1];
    if (y > 0)
        flux += (in[(y - 1) * width + x] - here) / conductivity[(y - 1) * width + x];
    if (y < height - 1)
        flux += (in[(y + 1) * width + x] - here) / conductivity[(y + 1) * width + x];
    out[y * width + x] = here + dt * flux;
    if (x == 0 || y == 0)
        out[y * width + x] += dt * conductivity[y * width + x];
}
