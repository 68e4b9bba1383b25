package main

// reportHead is what the report says beside its tables.
const reportHead = "# Preemptible kernels: EffiSha's and FLEP's experiments, redone in simulated time\n\n"
