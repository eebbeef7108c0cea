"""NVTabular engine on Dask: on this CPU, or on GPUs by cuDF. Needs an environment of its own (`make setup-nvtabular`)."""
