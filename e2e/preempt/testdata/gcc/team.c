// OpenMP: a league of teams over a loop, with atomic updates and calls through a pointer, and one
// whose threads meet at a lock, at barriers and in tasks.
#include <omp.h>

#pragma omp declare target
int out[4096], total[2];
static int twice(int x) { return 2 * x; }
int (*volatile function)(int) = twice;
#pragma omp end declare target

int main(void)
{
#pragma omp target teams distribute parallel for num_teams(12) thread_limit(8)
	for (int i = 0; i < 4096; i++) {
		out[i] += function(i) + 100000 * omp_get_num_teams();
#pragma omp atomic
		total[0] += i % 7;
	}
#pragma omp target teams num_teams(12) thread_limit(8)
	{
#pragma omp parallel
		{
#pragma omp critical
			total[0]++;
#pragma omp barrier
#pragma omp single
			for (int i = 0; i < 6; i++)
#pragma omp task
				{
#pragma omp atomic
					total[1]++;
				}
#pragma omp taskwait
		}
		out[omp_get_team_num()] += 1000 * omp_get_team_num();
	}
	return 0;
}
