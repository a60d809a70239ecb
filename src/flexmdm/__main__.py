"""`python -m flexmdm` is `flexmdm`."""

from flexmdm.cli import main

main()
