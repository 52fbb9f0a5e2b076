"""A run on a cluster that this machine is no part of, through Ray's job API (http://HEAD:8265).

keys      refuses a config with a key in it: keys come from the nodes' environment, never from the
job package   the working directory of the job: the code, the config with its files, nothing else
jobs      Ray's API, its errors translated: submit, state, stop, log, list watch     follows a job
to its end, across dropped streams

Only `jobs` imports Ray. Token authentication (Ray 2.60): a cluster that was started with
RAY_AUTH_MODE=token answers only who shows its token. The caller's environment names it:
RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN, or RAY_AUTH_TOKEN_PATH with the file's path, or the token
in ~/.ray/auth_token. It is read by Ray and travels in the request's header; the job does not get
it."""
