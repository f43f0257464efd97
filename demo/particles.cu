// Forces in a cell list. Positions and forces are both float4 arrays that the compiler must take for overlapping, so
// the store of each partial force stands between a load of the particle's own position and the next one.
struct Box { int first; int count; int neighbours; int neighbour[26]; };

extern "C" __global__ void cell_forces(const Box *boxes, const float4 *position, float4 *force, float cutoff, float depth)
{
    const Box *home = boxes + blockIdx.x;
    for (int i = threadIdx.x; i < home->count; i += blockDim.x) {
        for (int k = 0; k <= home->neighbours; ++k) {
            const Box *other = k == 0 ? home : boxes + home->neighbour[k - 1];
            for (int j = 0; j < other->count; ++j) {
                const float4 a = position[home->first + i];
                const float4 b = position[other->first + j];
                const float dx = a.x - b.x, dy = a.y - b.y, dz = a.z - b.z;
                const float r2 = dx * dx + dy * dy + dz * dz;
                if (r2 < cutoff * cutoff && r2 > 0.0f) {
                    const float s = depth * a.w * b.w * rsqrtf(r2) / r2;
                    force[home->first + i].x += s * dx;
                    force[home->first + i].y += s * dy;
                    force[home->first + i].z += s * dz;
                }
            }
        }
    }
}
