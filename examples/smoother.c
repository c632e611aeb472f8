/* A private exponential smoother: x_k = x_{k-1} + (y_k - x_{k-1}) / 2 from x_0 = 0, released with Laplace noise.
 *
 *     cc -O2 -o smoother smoother.c -lm
 *     dpverify verify --first a.csv --second b.csv --epsilon 0.5 -- ./smoother
 *
 * For each block: read `runs seed n` and n numbers, write `runs` lines of n numbers, flush. End when the input ends. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static uint64_t state;

static double uniform(void) /* splitmix64: strictly between 0 and 1 */
{
    uint64_t z = (state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return ((double)((z ^ (z >> 31)) >> 11) + 0.5) / 9007199254740992.0;
}

static double laplace(void)
{
    return log(uniform()) - log(uniform());
}

int main(int argc, char **argv)
{
    double scale = argc > 1 ? atof(argv[1]) : 1.0;
    long runs, n;
    unsigned long long seed;
    while (scanf("%ld %llu %ld", &runs, &seed, &n) == 3) {
        double *x = malloc(n * sizeof *x), before = 0.0, y;
        for (long k = 0; k < n; k++) {
            if (scanf("%lf", &y) != 1)
                return 1;
            x[k] = before += (y - before) / 2;
        }
        state = seed;
        for (long run = 0; run < runs; run++)
            for (long k = 0; k < n; k++)
                printf("%.17g%c", x[k] + scale * laplace(), k + 1 < n ? ' ' : '\n');
        fflush(stdout);
        free(x);
    }
    return 0;
}
