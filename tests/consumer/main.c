/* Multiplies two small matrices from C, by rows and by columns, and makes a mistake. */
#include <headlane/cblas.h>

#include <stdio.h>
#include <string.h>

static int is_right(const char* what, const float* c, float c0, float c1, float c2, float c3) {
  const int right = c[0] == c0 && c[1] == c1 && c[2] == c2 && c[3] == c3 && headlane_cblas_error() == NULL;
  printf("%s: %g %g %g %g, %s\n", what, (double)c[0], (double)c[1], (double)c[2], (double)c[3],
         right ? "right" : "wrong");
  return right;
}

int main(void) {
  const float a[] = {1, 2, 3, 4, 5, 6};
  const float b[] = {7, 8, 9, 10, 11, 12};
  float c[] = {1, 1, 1, 1};
  int right = 1;
  const char* error = NULL;

  /* Rows: [2, 3] · [3, 2], twice, and c. */
  headlane_cblas_sgemm(HEADLANE_CBLAS_ROW_MAJOR, HEADLANE_CBLAS_NO_TRANS, HEADLANE_CBLAS_NO_TRANS, 2, 2, 3, 2, a, 3, b,
                       2, 1, c, 2);
  right &= is_right("rows", c, 117, 129, 279, 309);

  /* The same memory as columns: aᵀ [2, 3] · bᵀ [3, 2]. */
  headlane_cblas_sgemm(HEADLANE_CBLAS_COLUMN_MAJOR, HEADLANE_CBLAS_TRANS, HEADLANE_CBLAS_TRANS, 2, 2, 3, 1, a, 3, b, 2,
                       0, c, 2);
  right &= is_right("columns", c, 58, 139, 64, 154);

  headlane_cblas_sgemm(HEADLANE_CBLAS_ROW_MAJOR, HEADLANE_CBLAS_NO_TRANS, HEADLANE_CBLAS_NO_TRANS, 2, 2, 3, 1, a, 2, b,
                       2, 0, c, 2);
  error = headlane_cblas_error();
  printf("error: %s\n", error == NULL ? "none" : error);
  right &= error != NULL && strcmp(error, "headlane_cblas_sgemm: lda is 2, the minimum is 3: a has 3 columns") == 0;
  right &= c[0] == 58 && c[1] == 139 && c[2] == 64 && c[3] == 154;
  return right ? 0 : 1;
}
