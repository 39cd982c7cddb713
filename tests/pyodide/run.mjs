// Runs tests with the Python of Pyodide, a CPython for WebAssembly: node run.mjs PYODIDE ROOT SITE_PACKAGES TEST...
// It has no sockets and no threads, so only tests of pure Python code run there.
import { pathToFileURL } from "node:url";

const [pyodide, root, packages, ...tests] = process.argv.slice(2);
const { loadPyodide } = await import(pathToFileURL(`${pyodide}/pyodide.mjs`).href);
const python = await loadPyodide();
for (const [folder, place] of [[root, "/root"], [packages, "/packages"]]) {
  python.FS.mkdirTree(place);
  python.FS.mount(python.FS.filesystems.NODEFS, { root: folder }, place);
}
python.globals.set("tests", python.toPy(tests));
process.exitCode = python.runPython(`
import os, sys
os.chdir("/root")
os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
sys.dont_write_bytecode = True
sys.path += ["/root/src", "/packages"]
import pytest
options = ["-q", "-c", "/dev/null", "--rootdir", "/root", "--noconftest", "-p", "no:cacheprovider", "--import-mode=importlib"]
int(pytest.main([*options, *tests]))
`);
