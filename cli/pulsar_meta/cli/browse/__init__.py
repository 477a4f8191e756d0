"""The screens of `browse`: a store's tree on the left, and the place under the cursor on the right.

Only the command `browse` imports these modules, because textual is slow to import.
"""
