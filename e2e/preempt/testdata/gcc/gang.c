// OpenACC: gangs, workers and vectors, with a private array of each gang and atomic updates.
int out[4096], total[2];
#pragma acc declare create(out, total)
#pragma acc routine vector
static int add(int i)
{
	int sum = 0;
#pragma acc loop vector reduction(+ : sum)
	for (int k = 0; k < 50; k++)
		sum += k * i;
	return sum;
}

int main(void)
{
#pragma acc parallel loop gang num_gangs(12) num_workers(4) vector_length(32) present(out, total)
	for (int g = 0; g < 64; g++) {
		int mine[64];
#pragma acc loop worker
		for (int w = 0; w < 64; w++)
			mine[w] = add(g + w);
#pragma acc loop worker vector
		for (int w = 0; w < 64; w++) {
			out[64 * g + w] += mine[63 - w];
#pragma acc atomic update
			total[0] += mine[w] % 11;
		}
	}
	return 0;
}
