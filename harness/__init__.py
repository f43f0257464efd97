"""Run kernels, read what ptxas made of them, time and compare them.

Sees `ptx` and nothing above it. Modules are imported by the verb that needs them: importing this
package loads none of them.
"""
