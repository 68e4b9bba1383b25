// Matrices of a warp in each type and shape, with factors in rows and columns, against the CPU.
#include "rt.h"

#include <mma.h>

using namespace nvcuda::wmma;

template <class T> struct in_memory { typedef T type; };
template <> struct in_memory<precision::tf32> { typedef float type; };

template <class T, class S, int M, int N, int K, class LA, class LB>
__global__ void product(const typename in_memory<T>::type *a, const typename in_memory<T>::type *b, const S *c, S *d, layout_t l)
{
    fragment<matrix_a, M, N, K, T, LA> fa;
    fragment<matrix_b, M, N, K, T, LB> fb;
    fragment<accumulator, M, N, K, S> sum, result;
    fill_fragment(result, S(0));
    load_matrix_sync(fa, a, std::is_same<LA, row_major>::value ? K : M);
    load_matrix_sync(fb, b, std::is_same<LB, row_major>::value ? N : K);
    load_matrix_sync(sum, c, l == mem_row_major ? N : M, l);
    mma_sync(result, fa, fb, sum);
    for (int i = 0; i < result.num_elements; i++)
        result.x[i] = result.x[i] + S(1);
    store_matrix_sync(d, result, l == mem_row_major ? N : M, l);
}

template <class T> static T *device(const std::vector<T> &v)
{
    T *p;
    OK(cudaMalloc(&p, v.size() * sizeof(T)));
    OK(cudaMemcpy(p, v.data(), v.size() * sizeof(T), cudaMemcpyHostToDevice));
    return p;
}

// All numbers and sums are small integers, which every type holds.
template <class T, class S, int M, int N, int K, class LA, class LB> static void check(layout_t l, int least)
{
    typedef typename in_memory<T>::type E;
    const bool rows_a = std::is_same<LA, row_major>::value, rows_b = std::is_same<LB, row_major>::value;
    std::vector<E> a(M * K), b(K * N);
    std::vector<S> c(M * N), d(M * N);
    auto number = [least](int i, int j) { return (i * 5 + j * 3) % 7 + least; };
    auto at = [l](int i, int j) { return l == mem_row_major ? i * N + j : j * M + i; };
    for (int k = 0; k < K; k++) {
        for (int i = 0; i < M; i++)
            a[rows_a ? i * K + k : k * M + i] = E(number(i, k));
        for (int j = 0; j < N; j++)
            b[rows_b ? k * N + j : j * K + k] = E(number(j, k + 1));
    }
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++)
            c[at(i, j)] = S(number(j, i));
    E *da = device(a), *db = device(b);
    S *dc = device(c), *dd = device(d);
    product<T, S, M, N, K, LA, LB><<<1, 32>>>(da, db, dc, dd, l);
    OK(cudaMemcpy(d.data(), dd, d.size() * sizeof(S), cudaMemcpyDeviceToHost));
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++) {
            int want = number(j, i) + 1;
            for (int k = 0; k < K; k++)
                want += number(i, k) * number(j, k + 1);
            TRUE((double)(float)d[at(i, j)] == want);
        }
    for (void *p : {(void *)da, (void *)db, (void *)dc, (void *)dd})
        OK(cudaFree(p));
}

template <class T, class S, int M, int N, int K> static void orders(int least = -3)
{
    check<T, S, M, N, K, row_major, col_major>(mem_row_major, least);
    check<T, S, M, N, K, col_major, row_major>(mem_col_major, least);
}

template <int M, int N> static void shape()
{
    orders<__half, float, M, N, 16>();
    orders<__half, __half, M, N, 16>();
    orders<__nv_bfloat16, float, M, N, 16>();
    orders<signed char, int, M, N, 16>();
    orders<unsigned char, int, M, N, 16>(0);
}

int main()
{
    shape<16, 16>();
    shape<32, 8>();
    shape<8, 32>();
    orders<precision::tf32, float, 16, 16, 8>();
    orders<double, double, 8, 8, 4>();
    return right();
}
