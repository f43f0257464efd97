/* What the wrapped functions of the CUDA runtime (ptxmotion_wrap.c) share: the kernels of this executable or shared
 * object that have versions, and the launch of a version in place of a kernel.
 *
 * All functions may be called from any thread. None of them returns an error: if something goes wrong, the caller
 * launches the kernel itself.
 */
#ifndef PTXMOTION_CUDART_H
#define PTXMOTION_CUDART_H

#include "ptxmotion_launch.h"

/* cudaGetKernel: the CUkernel of a host function. */
typedef int ptxmotion_get_kernel(void **kernel, const void *function);

/* The program has registered a kernel: the address of its host function, and its name in the module. */
void ptxmotion_cudart_registered(const void *function, const char *name);

/* The runtime has returned the CUkernel of a host function. */
void ptxmotion_cudart_has_handle(const void *function, void *kernel);

/* Launches a version of a kernel. `key` is its host function or its CUkernel. `get_kernel` finds the latter from the
 * former, and may be NULL where `key` is the CUkernel. Returns 1 if a version was launched; otherwise nothing was. */
int ptxmotion_cudart_launch(const void *key, ptxmotion_get_kernel *get_kernel, const ptxmotion_config *config,
                            void **arguments);

/* The program is going to use the code of a kernel without launching it. */
void ptxmotion_cudart_used(const void *function, ptxmotion_get_kernel *get_kernel);

/* Reads an attribute of a kernel with versions. Returns 0 if there are none, or if it cannot be read. */
int ptxmotion_cudart_attribute(const void *function, int attribute, int *value);

/* The program has changed an attribute of a kernel, or, if `function` is NULL, of one that is not known. */
void ptxmotion_cudart_changed(const void *function);

#endif
