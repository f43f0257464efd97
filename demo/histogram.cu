// Weighted histogram in shared memory, with a divergent branch that scales outliers. Both arms divide by the same
// bin width.
extern "C" __global__ void histogram(const float *samples, const float *weights, float *bins, int count, int bins_used,
                                     float low, float high)
{
    extern __shared__ float local[];
    for (int i = threadIdx.x; i < bins_used; i += blockDim.x)
        local[i] = 0.0f;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
        const float value = samples[i];
        int bin;
        float weight = weights[i];
        if (value < low || value >= high) {
            bin = value < low ? 0 : bins_used - 1;
            weight = weight / ((high - low) / bins_used);
        } else {
            bin = (int)((value - low) / ((high - low) / bins_used));
        }
        if (bin >= bins_used)
            bin = bins_used - 1;
        atomicAdd(&local[bin], weight);
    }
    __syncthreads();
    for (int i = threadIdx.x; i < bins_used; i += blockDim.x)
        atomicAdd(&bins[i], local[i]);
}
