// Makes MKL run the code for AVX-512 on every processor that has AVX-512.
//
// MKL asks these two functions of its own whether the processor is Intel's, and runs code for AVX2
// where it is not. A library that is loaded before PyTorch answers in their place. On a processor
// of AMD (Zen 5, MKL of PyTorch 2.15) f32 products then reach 94% of the peak instead of 38%: a
// comparison with PyTorch is fair only with this answer.
extern "C" {

int mkl_serv_intel_cpu() { return 1; }
int mkl_serv_intel_cpu_true() { return 1; }
}
