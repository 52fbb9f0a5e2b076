"""Runs a job on a cluster that this machine is not part of, through Ray's job API
(http://HEAD:8265).

package        builds the job's working directory: the code, the config with its files, nothing else
jobs           Ray's API with its errors translated: submit, state, stop, log, list
watch          follows a job to its end

config/secrets.py refuses a config that holds a key: keys come from the nodes' environment.

Only `jobs` talks to Ray. Token authentication (Ray 2.60): a cluster that was started with
RAY_AUTH_MODE=token answers only who shows its token. The caller's environment names it:
RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN, or RAY_AUTH_TOKEN_PATH with the file's path, or the token
in ~/.ray/auth_token. Ray reads it and sends it in the request's header; the job does not get it."""
