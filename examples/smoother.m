function smoother(data, runs, seed, out)
% A private exponential smoother: x_k = x_{k-1} + (y_k - x_{k-1}) / 2 from x_0 = 0, released with Laplace noise.
%
% In GNU Octave, started once (in the folder of this file):
%     dpverify verify --first a.csv --second b.csv --epsilon 0.5 -- octave-cli -q --eval smoother
% Started once for each block, with files for data and output; this form also suits MATLAB:
%     dpverify verify ... -- octave-cli -q --eval "smoother('{data}', {runs}, {seed}, '{out}')"
%     dpverify verify ... -- matlab -batch "smoother('{data}', {runs}, {seed}, '{out}')"
% Both Octave commands are tested. The MATLAB command is not.

if nargin > 0
    y = load('-ascii', data)';  % one row per line
    file = fopen(out, 'w');
    answer(file, y(:)', runs, seed);
    fclose(file);
    return
end
while true
    try
        header = sscanf(input('', 's'), '%f')';  % runs, seed, n; fgetl would wait for the next line
        y = sscanf(input('', 's'), '%f')';
    catch
        return  % the input has ended
    end
    answer(stdout, y, header(1), header(2));
    fflush(stdout);
end
end

function answer(file, y, runs, seed)
x = filter(0.5, [1, -0.5], y);
rng(seed);
noise = log(1 - rand(runs, numel(x))) - log(1 - rand(runs, numel(x)));
fprintf(file, [repmat('%.17g ', 1, numel(x)), '\n'], (repmat(x, runs, 1) + noise)');
end
