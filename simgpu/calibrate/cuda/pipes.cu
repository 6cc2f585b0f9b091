// Instructions of the ordinary pipes: CHAINS independent dependence chains a thread.
// BODY(k) works on x[k]; b and c are operands of the same type as x.

KERNEL pipe(int* out, int steps) {
  TYPE x[CHAINS], b = (TYPE)(threadIdx.x & 3), c = (TYPE)1;
#pragma unroll
  for (int k = 0; k < CHAINS; k++) x[k] = (TYPE)(threadIdx.x + k);
  BEGIN
#pragma unroll 1
  for (int i = 0; i < steps; i++) {
#pragma unroll
    for (int u = 0; u < 128 / CHAINS; u++) {
#pragma unroll
      for (int k = 0; k < CHAINS; k++) { BODY; }
    }
  }
  TYPE sum = x[0];
#pragma unroll
  for (int k = 1; k < CHAINS; k++) sum += x[k];
  END
  USE((int)sum)
}
