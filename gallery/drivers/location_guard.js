// Reads requests of dpverify and answers with positions from Location Guard's own laplace.js, which argument 1 names.
// A request is two lines: "runs seed n", and latitude and longitude. Location Guard cannot be seeded.
const PlanarLaplace = require(require("path").resolve(process.argv[2]));
const epsilon = Number(process.argv[3]);
const mechanism = new PlanarLaplace();
let runs = null;

require("readline").createInterface({ input: process.stdin }).on("line", (line) => {
  if (runs === null) {
    runs = Number(line.split(" ")[0]);
    return;
  }
  const [latitude, longitude] = line.trim().split(/\s+/).map(Number);
  const lines = [];
  for (let run = 0; run < runs; run++) {
    const reported = mechanism.addNoise(epsilon, { latitude, longitude });
    lines.push(reported.latitude + " " + reported.longitude);
  }
  process.stdout.write(lines.join("\n") + "\n");
  runs = null;
});
