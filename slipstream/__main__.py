from slipstream.cli import main

main()
