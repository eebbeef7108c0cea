"""The other engine: NVTabular on Dask, on this CPU, or on GPUs by cuDF. It runs in an environment of its own (`make setup-nvtabular`)."""
